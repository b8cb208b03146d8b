"""Mesh plan: who probes whom, how often and over which source port (docs/mesh.md, decision 0012)."""
