"""Two programs measured in alternation on this machine; they print fake times."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pockengine.errors import FarmError, JobFailed
from pockengine.farm.bench.ab import take_turns
from pockengine.farm.jobs.job import Job
from pockengine.farm.transports.local import LocalTransport
from pockengine.tests.farm.helpers import script


@pytest.fixture(name="board")
def this_machine() -> Iterator[LocalTransport]:
    with closing(LocalTransport("here")) as transport:
        yield transport


def stepper(folder: Path, name: str, milliseconds: float) -> Job:
    """Return a program that logs its name when it runs; its first two steps are slow."""
    slow, calm = int(milliseconds * 3e6), int(milliseconds * 1e6)
    lines = [f'echo {{\\"ns\\": {slow}}}'] * 2 + [f'echo {{\\"ns\\": {calm}}}'] * 6
    text = "\n".join([f"echo {name} >> {folder}/order", *lines])
    return Job(script(folder, text, f"{name}.sh"))


def test_programs_alternate_and_their_ratio_is_reported(
    board: LocalTransport, tmp_path: Path
) -> None:
    jobs = {name: stepper(tmp_path, name, ms) for name, ms in (("a", 2.0), ("b", 3.0))}

    said: list[str] = []
    turns = take_turns(board, jobs, 3, tmp_path, say=said.append)

    assert turns.medians == {"a": [2.0] * 3, "b": [3.0] * 3}
    assert turns.ratio("a", "b").ratio == 1.5
    assert said[:3] == ["round 1 of 3: a", "round 1 of 3: b", "round 2 of 3: b"]
    assert (tmp_path / "order").read_text().split() == ["a", "b", "b", "a", "a", "b"]


@pytest.mark.parametrize("text", ["echo hello", "echo 3", "true"])
def test_a_program_without_a_report_fails(board: LocalTransport, tmp_path: Path, text: str) -> None:
    jobs = {"a": Job(script(tmp_path, text)), "b": stepper(tmp_path, "b", 1.0)}

    with pytest.raises(JobFailed, match=r"instead of its report|printed no step"):
        take_turns(board, jobs, 1, tmp_path)


def test_one_program_cannot_alternate(board: LocalTransport, tmp_path: Path) -> None:
    with pytest.raises(FarmError, match="two programs"):
        take_turns(board, {"a": stepper(tmp_path, "a", 1.0)}, 1, tmp_path)
