"""A command's progress: one line per step, not per message."""

import io
import re

import pytest

from pockengine.cli.steps import CLEAR, Steps

MESSAGES = (
    "planning",
    "compiling 2 files for rpi4",
    "compiling kernels_0.c",
    "compiled 1 of 2 files for rpi4",
    "compiled 2 of 2 files for rpi4",
    "linking pockengine-run",
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_log_has_a_line_for_each_step() -> None:
    log = io.StringIO()
    with Steps(log) as steps:
        for text in MESSAGES:
            steps(text)

    assert log.getvalue().splitlines() == [MESSAGES[0], MESSAGES[1], MESSAGES[-1]]


def test_a_terminal_shows_the_last_message_of_each_step_with_its_time() -> None:
    terminal = Terminal()
    with Steps(terminal, width=60) as steps:
        for text in (*MESSAGES, "x" * 200):
            steps(text)

    visible = [line.split(CLEAR)[-1] for line in terminal.getvalue().split("\n")[:-1]]
    assert [line.split("  ")[0] for line in visible[:3]] == [
        MESSAGES[0],
        MESSAGES[-2],
        MESSAGES[-1],
    ]
    assert all(re.search(r" \d+\.\d s$", line) for line in visible)
    assert {len(line) for line in visible} == {59}
    assert terminal.getvalue().endswith("\n")


def test_a_failure_completes_the_line() -> None:
    terminal = Terminal()

    def fail() -> None:
        with Steps(terminal) as steps:
            steps("planning")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert terminal.getvalue().endswith(" s\n")
