"""``python -m tests.fuzz.engine [--seconds N] [TARGET ...]``: libFuzzer, one target after the other."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.fuzz.engine import targets


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.fuzz.engine")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("targets", nargs="*", default=targets.names())
    asked = parser.parse_args()
    compiler = targets.clang()
    if compiler is None:
        print("no clang: nothing was fuzzed", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        objects = targets.objects(compiler, ("-O1", "-fsanitize=fuzzer-no-link,address,undefined"), folder)
        for name in asked.targets:
            program = targets.linked(compiler, targets.LIBFUZZER, name, objects, folder)
            print(f"{name}: {asked.seconds} s", flush=True)
            limits = [f"-max_total_time={asked.seconds}", "-max_len=2000", "-verbosity=0", "-print_final_stats=1"]
            if subprocess.run([str(program), *limits], check=False).returncode:
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
