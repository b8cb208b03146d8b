"""Chaos: everything is killed at random points, and then all is counted. ``python -m tests.chaos --help``.

==============  ====================================================================================================
`placements`    crash placements in process, their parts `placed_stages` and `placed_archive` added up
`story`         what the hosts of a simulated fabric measure, run by run of the same seed; faults with known truth
`jobs`          a job on these hosts, so that the controller has something to command
`replicas`      the same story before 1, 2 and 4 of every stage: the findings are the same
`plan`          what is done to whom, and when: drawn from the seed
`process`       one child process: its log, its death, its restart
`house`         everything that runs: broker, ClickHouse, stages, agents
`acts`          the plan carried out
`agent`         the process of an agent; what it made, what was taken, what it shed stands in its `journal`
`clickhouse`    the engine behind ClickHouse's HTTP protocol as a process that can be killed
`relay`         a way to the broker that can be cut
`poison`        messages that nobody can read
`digest`        sums of rows that do not depend on their order
`onbus`         what is on the topics, read by another client
`archived`      what is in the archive, by SQL
`accounting`    the books: made, on the bus, archived; dead letters
`judgements`    findings against what was broken; commands against one another
`run`           one run: told, carried out, counted
`report`        the books in words, and the one JSON object
==============  ====================================================================================================
"""
