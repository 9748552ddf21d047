import io

import pytest
from rich.console import Console

from pockengine.farm.progress import step


def console() -> Console:
    return Console(file=io.StringIO(), width=200, force_terminal=False)


def text(of: Console) -> str:
    assert isinstance(of.file, io.StringIO)
    return of.file.getvalue()


def test_without_a_terminal_a_step_is_a_line_at_start_and_end() -> None:
    out = console()

    with step("boot [rpi4]", out) as running:
        assert text(out) == "boot [rpi4] ...\n"
        running.detail = "3 MB"

    _, second = text(out).splitlines()
    assert second.startswith("boot [rpi4]: took 0.")
    assert second.endswith("s (3 MB)")


def test_failing_steps_are_reported_and_raise() -> None:
    out = console()

    with pytest.raises(ValueError, match="x"), step("build", out):
        raise ValueError("x")
    assert "build: failed after 0." in text(out)
