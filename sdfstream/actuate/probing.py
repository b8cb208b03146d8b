"""What agents say of themselves and of their probe paths: who was heard when, which paths are alive and how fast."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sdfstream.actuate.routes import ProbeKey
from sdfstream.records.fabric import host_of

MAX_PATHS: Final = 200_000
_STATES: Final = ("alive", "silent", "unknown")


class Probing:
    """Hosts by last sign of life (bus time), and the probe paths that their agents send."""

    def __init__(self) -> None:
        self._heard: dict[str, int] = {}
        self._paths: dict[ProbeKey, tuple[str, int]] = {}
        """State and interval (ns) of every path that exists."""
        self._of_host: dict[str, dict[ProbeKey, None]] = {}
        self.version = 0
        """Grows whenever a probe path comes, goes or changes its pace."""
        self.shed = 0
        """Paths that there was no room for, since it was last read."""

    def hear(self, host: str, at_ns: int) -> None:
        """Something of this host's agent came."""
        if host:
            self._heard[host] = max(at_ns, self._heard.get(host, at_ns))

    def silence_ns(self, host: str, now_ns: int) -> int | None:
        """How long the host's agent has not been heard; None: never was."""
        at_ns = self._heard.get(host)
        return None if at_ns is None else now_ns - at_ns

    def take(self, data: Mapping[str, Any]) -> tuple[set[str], bool]:
        """Take a liveness statement.

        Returns
        -------
        touched : set of str
            NICs whose set of probe paths changed, or how fast they are.
        unrest : bool
            Some path fell silent or came back.

        Raises
        ------
        KeyError, TypeError, ValueError, AttributeError
            It is not as its schema says.
        """
        host = str(data["host"])
        mine: dict[ProbeKey, tuple[str, int]] = {}
        for entry in data["changes"]:
            state = entry["state"]
            if state not in _STATES:
                raise ValueError(f"no state {state!r}")
            if entry["role"] == "sender":
                key = ProbeKey(str(entry["src"]), str(entry["dst"]), int(entry["path"]), int(entry["dscp"]))
                mine[key] = (state, int(entry["interval_ns"]))
        touched: set[str] = set()
        unrest = False
        known = len(self._paths)
        for key, (state, interval_ns) in mine.items():
            before = self._paths.get(key)
            if before is None or before[1] != interval_ns:
                touched.add(key.src)
            if before is not None and {before[0], state} == {"alive", "silent"}:
                unrest = True
            self._put(host, key, state, interval_ns)
        if data["complete"]:
            for key in [k for k in self._of_host.get(host, {}) if k not in mine]:
                del self._of_host[host][key]
                self._paths.pop(key, None)
                touched.add(key.src)
        self.version += bool(touched) or len(self._paths) != known
        return touched, unrest

    def _put(self, host: str, key: ProbeKey, state: str, interval_ns: int) -> None:
        if key not in self._paths and len(self._paths) >= MAX_PATHS:
            self.shed += 1
            return
        self._paths[key] = (state, interval_ns)
        self._of_host.setdefault(host, {})[key] = None

    def interval_ns(self, key: ProbeKey) -> int | None:
        """Interval between the path's probes; None: it is not probed."""
        found = self._paths.get(key)
        return None if found is None else found[1]

    def alive(self, key: ProbeKey) -> bool:
        """Whether its sender hears answers on it."""
        found = self._paths.get(key)
        return found is not None and found[0] == "alive"

    def forget(self, before_ns: int) -> None:
        """Drop hosts that were not heard since."""
        for host in [h for h, at_ns in self._heard.items() if at_ns < before_ns]:
            del self._heard[host]
            for key in self._of_host.pop(host, {}):
                self._paths.pop(key, None)
                self.version += 1

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values."""
        of = {key: host for host, keys in self._of_host.items() for key in keys}
        return {
            "heard": list(self._heard.items()),
            "paths": [[*key, *about, of.get(key, host_of(key.src))] for key, about in self._paths.items()],
            "shed": self.shed,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._heard = {host: at_ns for host, at_ns in state["heard"]}
        self._paths, self._of_host = {}, {}
        for src, dst, path, dscp, name, interval_ns, host in state["paths"]:
            key = ProbeKey(src, dst, path, dscp)
            self._paths[key] = (name, interval_ns)
            self._of_host.setdefault(host, {})[key] = None
        self.shed = state["shed"]
