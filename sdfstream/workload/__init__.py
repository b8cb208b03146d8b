"""Jobs: the map of who runs where, what their queue pairs get, and an emulated training job to try it with.

`jobmap` is the agent's view of the jobs on its hosts, `stage` the in-band stage of the pipeline; `rank`, `qp_*`,
`collective*` and `process_*` are the emulated job, `control` the rules of its control socket.
"""
