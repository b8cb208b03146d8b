"""The routes that leases watch on a host, for the choice of the probe paths that are to be quick."""

from __future__ import annotations

from sdfstream.agent.commands.host_state import HostState
from sdfstream.agent.commands.path_watch import WatchedRoute, WatchedRoutes


def watched_routes(host_state: HostState) -> WatchedRoutes | None:
    """The routes, and which of them queue pairs use now; None: they are those of the last call."""
    if not host_state.routes_changed:
        return None
    host_state.routes_changed = False
    routes: dict[WatchedRoute, None] = {}
    for lease in host_state.leases.values():
        known = host_state.known(lease)
        if known is None or not known.sends:
            continue
        for path, segments in (lease.terms.watches or {}).items():
            names = tuple(segment.name for segment in segments)
            routes[WatchedRoute(lease.src, known.qp.dst, known.qp.dscp, path == known.path, names)] = None
    return WatchedRoutes(tuple(routes), host_state.watches.crossing())
