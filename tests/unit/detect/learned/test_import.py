"""What detect learns by is imported by the first label, and by nothing that starts."""

import subprocess
import sys

_SCRIPT = """
import sys
import sdfstream.pipeline, sdfstream.agent.loop_io, sdfstream.cli
from sdfstream.detect.stage import DetectStage
DetectStage().snapshot()
loaded = [name for name in ("river", "scipy", "narwhals") if name in sys.modules]
assert not loaded, loaded
from sdfstream.detect.learned.kind import KindModel
KindModel([])
assert "river" in sys.modules
assert "scipy.stats" not in sys.modules, "the heavy half of its dependencies"
"""


def test_processes_without_labels_do_not_import_river() -> None:
    done = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
