"""Hostile names, arguments and answers are not interpreted, on a real shell."""

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pockengine.errors import FarmError
from pockengine.farm.boards.facts import parse
from pockengine.farm.jobs.job import Job, run_job
from pockengine.farm.transports.limits import CommandLimits
from pockengine.farm.transports.loopback import Loopback
from pockengine.farm.transports.powered import PoweredTransport
from pockengine.tests.farm.helpers import script

# All possible process arguments: UTF-8 text without NUL.
ARGUMENT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)
NAME = ARGUMENT.filter(lambda text: text not in ("", ".", "..", "program") and "/" not in text)
NAME = NAME.filter(lambda text: len(text.encode()) < 200)
ONCE = settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(name="board", scope="module")
def ssh_board() -> Iterator[PoweredTransport]:
    with closing(Loopback("board")) as host:
        host.power("on")
        with closing(PoweredTransport(host)) as board:
            yield board


@ONCE
@given(st.lists(ARGUMENT, min_size=1, max_size=5))
def test_arguments_arrive_unchanged(board: PoweredTransport, arguments: list[str]) -> None:
    result = board.run(["printf", "%s\\0", *arguments], limits=CommandLimits(within_free=True))

    assert result.stdout.decode() == "".join(f"{text}\0" for text in arguments)


@ONCE
@given(NAME, NAME)
def test_files_of_any_name_round_trip(
    board: PoweredTransport, tmp_path_factory: pytest.TempPathFactory, name: str, output: str
) -> None:
    folder = tmp_path_factory.mktemp("job")
    source = folder / "source"
    source.write_bytes(name.encode())  # text mode would read \r as \n
    if name == output:
        output += "2"
    job = Job(
        script(folder, 'cat "./$1" > "./$2"'),
        args=(name, output),
        inputs={name: source},
        outputs=(output,),
    )

    result = run_job(board, job, folder / "results")

    assert result.outputs[output].read_bytes() == name.encode()
    assert board.run(["ls", f"{board.workdir}/jobs"]).stdout == b""


@ONCE
@given(ARGUMENT)
def test_work_folder_names_are_not_interpreted(board: PoweredTransport, text: str) -> None:
    folder = f"{board.workdir}/{text}/none"

    result = board.run(["echo", "ran"], cwd=folder)

    assert not result.ok
    assert result.stdout == b""


@given(st.text())
def test_board_answers_are_facts_or_errors_that_name_it(text: str) -> None:
    message = ""
    try:
        parse(text, "board")
    except FarmError as error:
        message = str(error)

    assert message == "" or message.startswith("board: says")


def test_damaged_programs_are_not_run(board: PoweredTransport, tmp_path: Path) -> None:
    """Files from the store are verified again in the job's folder, before anything runs."""
    program = script(tmp_path, f"touch {tmp_path}/ran")
    board.put(program, f"{board.workdir}/first")

    class Late(PoweredTransport):
        """A board whose store is damaged between sending and running."""

        def put(self, source: Path, target: str, progress: object = None) -> bool:
            sent = super().put(source, target)
            self.run(["sh", "-c", 'echo "touch $1/ran" > "$2"', "sh", str(tmp_path), target])
            return sent

    board.__class__ = Late
    try:
        with pytest.raises(FarmError, match=r"program in .* is not .*damaged"):
            run_job(board, Job(program), tmp_path)
    finally:
        board.__class__ = PoweredTransport
    assert not (tmp_path / "ran").exists()


def test_ssh_agent_of_the_user_is_never_used(
    board: PoweredTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind(str(tmp_path / "agent"))
        agent.listen()
        agent.settimeout(0.5)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))

        board.power("cycle")

        assert board.run(["true"]).ok
        with pytest.raises(TimeoutError):
            agent.accept()
