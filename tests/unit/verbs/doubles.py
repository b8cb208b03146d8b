"""A device that answers as it was recorded or told to: pyverbs' objects, as far as `LiveQp` uses them."""

from __future__ import annotations

import errno
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

ENUMS = SimpleNamespace(
    IBV_QP_STATE=1,
    IBV_QP_AV=2,
    IBV_QP_DEST_QPN=4,
    IBV_QP_PORT=8,
    IBV_QPS_RTS=3,
    IBV_QPS_SQD=4,
    IBV_QPS_ERR=6,
    IBV_WR_ATOMIC_FETCH_AND_ADD=6,
)
GID = "0000:0000:0000:0000:0000:ffff:0a00:0901"


class DeviceError(Exception):
    """As pyverbs raises it."""

    def __init__(self, error_code: int) -> None:
        super().__init__(error_code)
        self.error_code = error_code


class Record(SimpleNamespace):
    """Any object of pyverbs that only holds fields."""


class Qp:
    """A queue pair; `sqd` and `address` are the errnos of these changes, `draining` how often resuming is refused."""

    qp_num = 17

    def __init__(self, *, sqd: int = 0, address: int = 0, draining: int = 0, label: int = 9) -> None:
        self.sqd, self.address, self.draining = sqd, address, draining
        self.state = ENUMS.IBV_QPS_RTS
        self.route = Record(
            is_global=1, flow_label=label, traffic_class=26 << 2 | 2, dgid=GID, port_num=1, sgid_index=1, hop_limit=64,
            sl=0, static_rate=0,
        )  # fmt: skip
        self.did: list[str] = []
        self.mlx5_port = -1

    def query(self, mask: int) -> tuple[Record, None]:
        return Record(qp_state=self.state, ah_attr=self.route, dest_qp_num=18), None

    def modify(self, attr: Any, mask: int) -> None:
        if mask == ENUMS.IBV_QP_AV:
            self.did.append(f"label {attr.ah_attr.gr.flow_label}")
            self._refuse(self.address)
            self.route.flow_label = attr.ah_attr.gr.flow_label
        elif attr.qp_state == ENUMS.IBV_QPS_SQD:
            self.did.append("halt")
            self._refuse(self.sqd if self.state == ENUMS.IBV_QPS_RTS else errno.EINVAL)
            self.state = ENUMS.IBV_QPS_SQD
        else:
            self.did.append("resume")
            self.draining -= 1
            self._refuse(errno.EINVAL if self.draining >= 0 else 0)
            self.state = ENUMS.IBV_QPS_RTS

    def post_send(self, wr: Any) -> None:
        self.did.append("prompt")
        raise DeviceError(errno.EINVAL)

    @staticmethod
    def _refuse(error: int) -> None:
        if error:
            raise DeviceError(error)


class Library:
    """Stands for `library_io.Verbs`; `mlx5` is the errno of the call that only mlx5 has."""

    enums = ENUMS
    error = DeviceError
    addr = SimpleNamespace(GID=str, GlobalRoute=Record, AHAttr=Record)
    qp = SimpleNamespace(QPAttr=Record)
    wr = SimpleNamespace(SGE=lambda *_: None, SendWR=Record)

    def __init__(self, mlx5: int = errno.EOPNOTSUPP) -> None:
        self.mlx5 = mlx5

    def attempt(self, act: Callable[[], object]) -> int:
        try:
            act()
        except DeviceError as failure:
            return failure.error_code
        return 0

    def move_port(self, qp: Qp, port: int) -> int:
        if not self.mlx5:
            qp.mlx5_port = port
        return self.mlx5


def context(vendor_id: int = 0xFFFFFF) -> Any:
    """A device."""
    return SimpleNamespace(
        query_gid=lambda port, index: "0000:0000:0000:0000:0000:ffff:0a00:0001",
        query_device=lambda: SimpleNamespace(vendor_id=vendor_id),
    )
