"""Who speaks for a host at the link: the first process, as long as it runs and is connected."""

from __future__ import annotations

from sdfstream.bus.link.owners import MOST_HOSTS, HostOwners, Process

A, B = Process(1, 0, "10"), Process(2, 0, "20")


def test_the_first_process_speaks_for_a_host_until_its_last_connection_ends() -> None:
    owners = HostOwners(lambda _: True)
    for process in (A, A, B):
        owners.connected(process)
    assert owners.other("h", A) is None
    assert owners.other("h", B) == A
    assert owners.other("other", B) is None
    owners.disconnected(A)
    assert owners.other("h", B) == A
    owners.disconnected(A)
    assert owners.other("h", B) is None


def test_one_that_ended_without_its_connection_being_seen_to_end_holds_nobody_back() -> None:
    owners = HostOwners(lambda process: process == B)
    assert owners.other("h", A) is None
    assert owners.other("h", B) is None
    assert owners.other("h", A) == B


def test_hosts_without_end_fill_no_memory() -> None:
    owners = HostOwners(lambda _: True)
    for n in range(MOST_HOSTS):
        assert owners.other(f"h{n}", A) is None
    assert owners.other("one more", A) is not None
    assert owners.other("h0", A) is None
