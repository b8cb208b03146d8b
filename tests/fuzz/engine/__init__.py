"""Fuzz targets of the packet engine, one a C file: ``fuzz_NAME.c`` has ``LLVMFuzzerTestOneInput``.

``python -m tests.fuzz.engine --seconds 600`` runs them under libFuzzer with its address and undefined-behaviour
sanitizers (clang with compiler-rt); a find is left in the working folder. The tests run them for a moment with the
machine's cc and `standalone.c`, which needs no clang.
"""
