"""The controller: from findings to guarded, leased, signed commands.

Which trouble leads to which action:

====================== ================================== ========= ===========================================
trouble                where                              action    switched by (settings ``actuate``)
====================== ================================== ========= ===========================================
finding of a kind in   a link, or a switch with suspects  steer     ``steer_on``, ``least_confidence``
``steer_on``                                                        (`contention.full_links`)
two or more queue      a link with a queue on it          steer     ``steer_collisions``
pairs on one link
finding ``congestion`` from a leaf to a NIC               throttle  ``throttle_incast`` (`incast.incasts`)
====================== ================================== ========= ===========================================

Dead links are in no row: agents move queue pairs away from them by themselves (`arming`), under commands that were
published beforehand. Agents obey in `sdfstream.agent.commands`.

Read `stage` (messages in, commands out); what is known, put together in `context`: of queue pairs `jobs`, of traces
`routes`, of probe paths `paths`, of links `links` and `queues`; the engines `arming` (where to: `alternates`),
`contention` (its trials: `effect`), `incast` and `overrides`; then `guard` (reasons to do nothing), `refusals` (how
those are published) and `ledger` (how commands are issued).
"""
