"""The data plane of an emulated job in C: what is done per packet, chunk and collective, in a thread of its own.

In reading order: `job.h` (the job without I/O), `requester.h`, `responder.h`, `stripe.h`, `collective.h`, `rank.h`,
`shell.h` (sockets and the thread); `layouts` and `library_io` (its structures and functions), `engine_io` (the job to
Python), `plane_io` (the whole data plane).
"""
