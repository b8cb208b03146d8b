"""The agent's side of clock pages: rows of ``sdf.state.clock.v1`` in, pages in shared memory out."""
