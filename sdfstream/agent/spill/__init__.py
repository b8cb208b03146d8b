"""Outputs on disk while the bus is away, bounded and in order.

`segment` is the bytes of a file, `files_io` the queues of files, `task_io` moves outputs between memory and disk,
`folder_io` finds the folder.
"""
