"""Chaos: everything is killed at random points, and then all is counted. ``python -m tests.chaos --help``.

==============  ====================================================================================================
`placements`    crash placements in process: the pluggable parts and their sum
`story`         what the hosts of a simulated fabric measure, run by run of the same seed; faults with known truth
`jobs`          a job on these hosts, so that the controller has something to command
`plan`          what is done to whom, and when: drawn from the seed
`process`       one child process: its log, its death, its restart
`house`         everything that runs: broker, ClickHouse, stages, agents
`acts`          the plan carried out
`agent`         the process of an agent: what it made, what was taken, what it shed, in a journal of its own
`clickhouse`    the engine behind ClickHouse's HTTP protocol as a process that can be killed
`relay`         a way to the broker that can be cut
`poison`        messages that nobody can read
`digest`        sums of rows that do not depend on their order
`onbus`         what is on the topics, read by another client
`archived`      what is in the archive, by SQL
`accounting`    the books: made, on the bus, archived; findings; commands; dead letters
`report`        the books in words, and the one JSON object
==============  ====================================================================================================
"""
