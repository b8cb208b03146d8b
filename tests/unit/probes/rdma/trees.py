"""Trees of sysfs in the shapes that drivers give them: made up after their sources; rxe's was recorded."""

from __future__ import annotations

from pathlib import Path

EMPTY_GID = "0000:0000:0000:0000:0000:0000:0000:0000"
LINK_LOCAL = "fe80:0000:0000:0000:0000:00ff:fe00:00a0"


def mapped(address: str) -> str:
    """An IPv4 address as a GID."""
    a, b, c, d = (int(octet) for octet in address.split("."))
    return f"0000:0000:0000:0000:0000:ffff:{a:02x}{b:02x}:{c:02x}{d:02x}"


def port(
    root: Path,
    device: str,
    *,
    state: str | None = "4: ACTIVE",
    layer: str | None = "Ethernet",
    gids: list[tuple[str, str | None]],
    hw: dict[str, str] | None = None,
    netdev: str = "eth0",
    number: int = 1,
) -> Path:
    """One port's folder; a GID's kind None is a file that is not there."""
    folder = root / "sys/class/infiniband" / device / "ports" / str(number)
    texts = {"state": state, "link_layer": layer}
    for index, (gid, kind) in enumerate(gids):
        texts[f"gids/{index}"] = gid
        texts[f"gid_attrs/types/{index}"] = kind
        texts[f"gid_attrs/ndevs/{index}"] = netdev if kind else None
    texts |= {f"hw_counters/{name}": text for name, text in (hw or {}).items()}
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is not None:
            path.write_text(f"{text}\n")
    return folder


def rxe(root: Path, device: str = "rxa0", address: str = "10.0.0.1") -> None:
    """As recorded: no counters folder, RoCE v2 only, empty entries that refuse to say their kind."""
    port(
        root,
        device,
        gids=[(LINK_LOCAL, "RoCE v2"), (mapped(address), "RoCE v2"), *[(EMPTY_GID, None)] * 1022],
        hw={
            "sent_pkts": "40", "rcvd_pkts": "40", "duplicate_request": "3", "out_of_seq_request": "1",
            "rcvd_rnr_err": "0", "rcvd_seq_err": "2", "completer_retry_err": "7", "retry_exceeded_err": "1",
        },
    )  # fmt: skip


def mlx5(root: Path, device: str = "mlx5_0") -> None:
    """Both RoCE versions of every address, v1 first."""
    kinds = ["IB/RoCE v1", "RoCE v2"]
    addresses = [LINK_LOCAL, LINK_LOCAL, mapped("10.0.0.1"), mapped("10.0.0.1")]
    port(
        root,
        device,
        gids=[(gid, kinds[n % 2]) for n, gid in enumerate(addresses)] + [(EMPTY_GID, None)] * 252,
        hw={
            "out_of_sequence": "12", "packet_seq_err": "5", "local_ack_timeout_err": "4", "rnr_nak_retry_err": "0",
            "np_ecn_marked_roce_packets": "900", "np_cnp_sent": "800", "rp_cnp_handled": "77", "out_of_buffer": "1",
            "duplicate_request": "2", "roce_slow_restart": "6", "lifespan": "10",
        },
    )  # fmt: skip


def bnxt_re(root: Path, device: str = "bnxt_re0") -> None:
    """RoCE v2 comes first in pairs, IPv6 too; a counter that says N/A."""
    routable = "2001:0db8:0000:0000:0000:0000:0000:0001"
    port(
        root,
        device,
        gids=[
            (LINK_LOCAL, "RoCE v2"), (LINK_LOCAL, "IB/RoCE v1"), (routable, "RoCE v2"), (mapped("10.0.0.2"), "RoCE v2"),
        ],
        hw={
            "to_retransmits": "9", "seq_err_naks_rcvd": "3", "max_retry_exceeded": "1", "rnr_naks_rcvd": "0",
            "oos_drop_count": "4", "rx_ecn_marked_pkts": "15", "tx_cnp_pkts": "14", "rx_cnp_pkts": "N/A",
        },
    )  # fmt: skip


def irdma(root: Path, device: str = "irdma0") -> None:
    """Counters named after MIBs; one beyond 64 bits."""
    port(
        root,
        device,
        gids=[(LINK_LOCAL, "RoCE v2"), (mapped("10.0.0.3"), "RoCE v2")],
        hw={"RxECNMrkd": "5", "cnpSent": "4", "cnpHandled": "3", "RetransSegs": str(1 << 64), "TxUDP": "1"},
    )


def hfi1(root: Path, device: str = "hfi1_0") -> None:
    """InfiniBand addressing, no net device, and no counters that have a common name."""
    port(root, device, layer="InfiniBand", gids=[("fe80:0000:0000:0000:0011:7501:0101:0101", None)], hw={})


def efa(root: Path, device: str = "rdmap0s6") -> None:
    """No link layer that is known, one GID without a kind."""
    port(
        root,
        device,
        layer="Unspecified",
        gids=[("fe80:0000:0000:0000:0800:00ff:fe00:0001", None)],
        hw={"retrans_pkts": "100", "retrans_timeout_events": "2", "rx_drops": "0", "tx_bytes": "5"},
    )
