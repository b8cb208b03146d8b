"""The packet engine: what an agent does per packet, in C, without the interpreter. Read `engine.h` first.

The numpy engines of `probes.stamp` are the reference and the fallback: same octets, same rows, same states, which
``tests/property/test_engine_*.py`` hold them to. `build_io` compiles, `library_io` loads, `engine_io` is the engine as
Python sees it, `rows` turns its rows into those of ``sdf.raw.probe.v1``. The reflecting half is `reflector.h`, and
`reflector_io` as Python sees it. The IO shell (`shell.h`) carries the packets
in a thread of its own; `native_io` hands it sockets, reflectors and prepared orders.
"""
