"""The writer of clock pages (`sdfstream.clock`): rows of ``sdf.state.clock.v1`` in, pages in shared memory out.

`history` compares the machine's clock with its oscillator, `maker` makes pages of rows, `writer_io` writes the files,
`task_io` is the agent's task.
"""
