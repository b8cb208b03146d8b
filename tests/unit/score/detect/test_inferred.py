"""Inferred places against the truth."""

from __future__ import annotations

from typing import Any

from sdfstream.score.detect.inferred import in_truth, is_inferred

LEAVES = {"h0/r0": "l0", "h1/r0": "l0", "h2/r0": "l1", "h3/r0": "l2"}


def route(a: str, up: str, spine: str, down: str, b: str) -> list[str]:
    return [f"{a}->{up}", f"{up}->{spine}", f"{spine}->{down}", f"{down}->{b}"]


ROUTES = {
    "h0/r0>h2/r0:1": route("h0/r0", "l0", "s1", "l1", "h2/r0"),
    "h1/r0>h3/r0:1": route("h1/r0", "l0", "s1", "l2", "h3/r0"),
    "h2/r0>h3/r0:1": route("h2/r0", "l1", "s1", "l2", "h3/r0"),
    "h0/r0>h3/r0:1": route("h0/r0", "l0", "s2", "l2", "h3/r0"),
}
LINK = "~core--~leaf(h0:r0)"


def said(subject: str, paths: list[str], nics: str = "h0/r0 h1/r0", kind: str = "link") -> dict[str, Any]:
    named = [p.replace(":", " udp:") + " dscp0 fwd" for p in paths]
    return {
        "subject": {"type": kind, "id": subject, "direction": "~leaf(h0:r0)->~core"},
        "suspects": [{"id": "~leaf(h0:r0)->~core", "probability": 0.9}],
        "evidence": [{"what": "nics-on-switch", "where": nics}] if nics else [],
        "symptoms": [{"subject": {"type": "path", "id": p}} for p in named],
    }


def place(statement: dict[str, Any]) -> str:
    return str(in_truth(statement, LEAVES, ROUTES)["subject"]["id"])


def test_a_link_is_the_one_of_its_leaf_that_all_paths_cross() -> None:
    found = in_truth(said(LINK, ["h0/r0>h2/r0:1", "h1/r0>h3/r0:1"]), LEAVES, ROUTES)
    assert found["subject"] == {"type": "link", "id": "l0--s1", "direction": "l0->s1"}
    assert found["suspects"] == [{"id": "l0->s1", "probability": 0.9}]


def test_a_link_is_looked_for_in_the_direction_that_is_named() -> None:
    """The answers of all paths that go out by s1 happen to come in by s2."""
    there = {f"{a}>h2/r0:1": route(a, "l0", "s1", "l1", "h2/r0") for a in ("h0/r0", "h1/r0")}
    back = {f"{a}>h2/r0:1": route("h2/r0", "l1", "s2", "l0", a) for a in ("h0/r0", "h1/r0")}
    routes = {key: there[key] + back[key] for key in there}
    out = said(LINK, list(routes))
    into = {**out, "subject": {**out["subject"], "direction": "~core->~leaf(h0:r0)"}}
    neither = {**out, "subject": {"type": "link", "id": LINK}}
    named = [in_truth(one, LEAVES, routes)["subject"] for one in (out, into, neither)]
    assert named[0] == {"type": "link", "id": "l0--s1", "direction": "l0->s1"}
    assert named[1] == {"type": "link", "id": "l0--s2", "direction": "s2->l0"}
    assert named[2] == {"type": "link", "id": LINK}


def test_what_does_not_single_out_one_element_is_no_place() -> None:
    both = ["h0/r0>h2/r0:1", "h1/r0>h3/r0:1"]
    assert place(said(LINK, both, nics="h0/r0")) == LINK, "a NIC of the leaf is missing"
    assert place(said(LINK, both, nics="h0/r0 h1/r0 h2/r0")) == LINK, "a NIC of another leaf is among them"
    assert place(said(LINK, both, nics="")) == LINK
    assert place(said(LINK, [*both, "h0/r0>h3/r0:1"])) == LINK, "they have no link of the leaf in common"
    assert place(said(LINK, [])) == LINK
    assert place(said(LINK, ["h9/r0>h8/r0:1"])) == LINK, "a path that the truth does not know"


def test_a_switch_is_the_one_beyond_the_leaves_that_all_paths_cross() -> None:
    crossing = ["h0/r0>h2/r0:1", "h1/r0>h3/r0:1", "h2/r0>h3/r0:1"]
    assert place(said("~core", crossing, nics="", kind="switch")) == "s1"
    assert place(said("~core", [*crossing, "h0/r0>h3/r0:1"], nics="", kind="switch")) == "~core"


def test_of_three_tiers_it_is_where_all_links_beyond_the_leaves_meet_that_all_paths_cross() -> None:
    """Of two pods no path crosses one link of a core switch alone; other nodes may be crossed by all as well."""

    def path(a: str, leaf: str, far: str, b: str) -> list[str]:
        return [f"{a}->{leaf}", f"{leaf}->p0a1", "p0a1->c3", "c3->p1a1", f"p1a1->{far}", f"{far}->{b}"]

    routes = {
        "h0/r0>h3/r0:1": path("h0/r0", "l0", "l2", "h3/r0"),
        "h2/r0>h3/r0:1": path("h2/r0", "l1", "l2", "h3/r0"),
        "h1/r0>h3/r0:1": [*path("h1/r0", "l0", "l2", "h3/r0")[:2], "p0a1->c1", "c1->p1a1", "p1a1->l2", "l2->h3/r0"],
    }
    both = said("~core", list(routes)[:2], nics="", kind="switch")
    assert in_truth(both, LEAVES, routes)["subject"]["id"] == "c3"
    other = said("~core", list(routes), nics="", kind="switch")
    assert in_truth(other, LEAVES, routes)["subject"]["id"] == "~core", "two nodes, and no link, in common"


def test_names_of_the_fabric_stay() -> None:
    statement = said("l0--s2", ["h0/r0>h2/r0:1"])
    assert not is_inferred(statement)
    assert in_truth(statement, LEAVES, ROUTES) is statement
