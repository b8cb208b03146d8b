"""Kernel settings of the lab's namespaces, and what each is for."""

from __future__ import annotations

from typing import Literal

from sdfstream.lab.spec import FabricSpec

_HASH_ALL = 0x37
"""Source, destination, protocol, source port, destination port."""
_HASH_SOURCE_PORT = 0x10


def settings(kind: Literal["host", "leaf", "spine"], spec: FabricSpec) -> dict[str, str]:
    """``/proc/sys`` names and values for one namespace; what an older kernel lacks is left out by the writer."""
    conf = "net/ipv4/conf"
    result = {f"{conf}/all/rp_filter": "0", f"{conf}/default/rp_filter": "0"}
    if spec.ip_version == 4:
        # No router solicitations and the like: an idle link counts exactly 0 packets.
        result |= {f"net/ipv6/conf/{which}/disable_ipv6": "1" for which in ("all", "default")}
    else:
        result |= {f"net/ipv6/conf/{which}/keep_addr_on_down": "1" for which in ("all", "default")}
        result |= {f"net/ipv6/conf/{which}/accept_ra": "0" for which in ("all", "default")}
        # Making a flow label gives the packet a hash of its own, which routers would use in place of the 5-tuple.
        result["net/ipv6/auto_flowlabels"] = "0"
    return result if kind == "host" else result | _router(spec)


def _router(spec: FabricSpec) -> dict[str, str]:
    fields = _HASH_ALL & ~_HASH_SOURCE_PORT if spec.hash_ignores_source_port else _HASH_ALL
    result = {
        "net/ipv4/ip_forward": "1",
        # A trace names the link it came in by, and none of its answers is withheld.
        "net/ipv4/icmp_errors_use_inbound_ifaddr": "1",
        "net/ipv4/icmp_ratelimit": "0",
        "net/ipv4/icmp_ratemask": "0",
        "net/ipv4/fib_multipath_hash_seed": str(spec.hash_seed),
    }
    # Policy 1 would take the random hash that connected sockets carry through veth in place of the 5-tuple.
    # Fields before policy: policy 3 with the old fields would hash without ports for a moment.
    result["net/ipv4/fib_multipath_hash_fields"] = str(fields)
    result["net/ipv4/fib_multipath_hash_policy"] = "3"
    if spec.ip_version == 6:
        result |= {"net/ipv6/conf/all/forwarding": "1", "net/ipv6/icmp/ratelimit": "0"}
        # With policy 3 the kernel answers route queries by another hash than it forwards by; with 1 (five-tuple) and
        # 0 (addresses) the two agree, for all packets but those of connected sockets.
        result["net/ipv6/fib_multipath_hash_policy"] = "0" if spec.hash_ignores_source_port else "1"
    return result
