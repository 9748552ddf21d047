"""Child processes never outlive the program that started them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from pockengine.farm.transports.lifetime import ending_with_us

# Start a child that would write to the inherited pipe, and end immediately.
PROGRAM = """
import subprocess
from pockengine.farm.transports.lifetime import ending_with_us
subprocess.Popen(ending_with_us(["sh", "-c", "echo alive; sleep 60"]))
"""


def test_commands_run_unchanged() -> None:
    command = ending_with_us(["printf", "%s|", "a b", "$HOME", ""])
    assert subprocess.run(command, capture_output=True, check=True).stdout == b"a b|$HOME||"


def test_late_children_without_a_parent_run_nothing(tmp_path: Path) -> None:
    setpriv = shutil.which("setpriv")
    late = tmp_path / "setpriv"
    late.write_text(f'#!/bin/sh\nsleep 1\nexec {setpriv} "$@"\n')
    late.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }

    # The pipe closes only after the child has ended too.
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, timeout=120
    )

    assert (done.returncode, done.stdout) == (0, b"")
