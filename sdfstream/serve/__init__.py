"""A running pipeline and its interfaces: one process (`service_io`), several (`stages_io`), queries, overrides."""
