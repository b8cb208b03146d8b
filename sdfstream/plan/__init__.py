"""Mesh plan: who probes whom, how often and over which source port (docs/mesh.md, decision 0012).

Read `stage`, `known` (what agents and traces reported; `traces`, `inventory`), then `draw`: `clocks` (with `rings`,
`domains`) and `coverage` (with `units`, `setcover`), chance by `hashing`; `publish` writes one signed event a host,
which names the mesh's `networks`.
"""
