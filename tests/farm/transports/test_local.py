import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pockengine.errors import FarmError, JobFailed, LogError
from pockengine.farm.jobs.job import Job, clean_board, run_job
from pockengine.farm.transports.local import LocalTransport
from pockengine.tests.farm.helpers import HOSTILE, eventually, script


@pytest.fixture
def host() -> Iterator[LocalTransport]:
    with closing(LocalTransport("host")) as transport:
        yield transport


def living_members(group: int) -> list[str]:
    """Return the running processes of a group; zombies do not count."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, member_of = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue  # it ended while we looked
        if int(member_of) == group and state not in "ZX":
            found.append(str(stat))
    return found


def ends(group: int) -> bool:
    """Return whether a killed process group soon ends; the kernel takes a moment."""
    return eventually(lambda: not living_members(group))


def test_output_and_status_are_returned(host: LocalTransport) -> None:
    result = host.run(["sh", "-c", "echo out; echo err >&2; exit 3"])

    assert (result.stdout, result.stderr, result.status) == (b"out\n", b"err\n", 3)
    assert result.describe() == "exit status 3: err"


def test_a_refused_argument_is_described_by_the_line_before_the_usage(
    host: LocalTransport,
) -> None:
    result = host.run(["sh", "-c", "printf 'error: no --x\nusage: it train|info\n' >&2; exit 2"])
    assert result.describe() == "exit status 2: error: no --x"

    result = host.run(["sh", "-c", "echo usage: it FILE >&2; exit 2"])
    assert result.describe() == "exit status 2: usage: it FILE"


def test_output_arrives_while_the_command_runs(host: LocalTransport) -> None:
    seen: list[tuple[str, bytes]] = []

    def sink(stream: str, data: bytes) -> None:
        seen.append((stream, data))
        (Path(host.workdir) / "go").touch()

    wait = "until [ -e go ]; do sleep 0.01; done"
    result = host.run(["sh", "-c", f"echo one; {wait}; echo two >&2"], timeout_s=120, sink=sink)

    assert seen == [("stdout", b"one\n"), ("stderr", b"two\n")]
    assert (result.stdout, result.stderr) == (b"one\n", b"two\n")


def test_failing_sinks_end_the_command(host: LocalTransport) -> None:
    def sink(stream: str, data: bytes) -> None:
        raise LogError("no room")

    with pytest.raises(LogError, match="no room"):
        host.run(["sh", "-c", "echo $$ > pid; echo one; sleep 60"], sink=sink)
    assert ends(int((Path(host.workdir) / "pid").read_text()))


def test_error_names_the_signal(host: LocalTransport) -> None:
    result = host.run(["sh", "-c", "kill -SEGV $$"])

    assert (result.signal, result.status, result.ok) == ("SIGSEGV", None, False)


def test_missing_programs_have_status_127(host: LocalTransport) -> None:
    result = host.run(["/no/such/program"])

    assert result.status == 127
    assert "No such file" in result.describe()


def test_hanging_commands_are_killed_with_their_children(host: LocalTransport) -> None:
    start = time.monotonic()

    with pytest.raises(JobFailed, match=r"'sh' did not end within 2 s"):
        host.run(["sh", "-c", "echo $$ > pid; sleep 600 | sleep 600"], timeout_s=2)

    assert time.monotonic() - start < 300
    assert ends(int((Path(host.workdir) / "pid").read_text()))


def test_arguments_arrive_unchanged(host: LocalTransport) -> None:
    result = host.run(["printf", "%s|", *HOSTILE])

    assert result.stdout.decode() == "".join(f"{text}|" for text in HOSTILE)


def test_present_files_are_not_copied_again(host: LocalTransport, tmp_path: Path) -> None:
    source, target = script(tmp_path, "echo 1"), f"{host.workdir}/x"

    assert host.put(source, target)
    assert not host.put(source, target)
    Path(target).write_text("damaged")
    assert host.put(source, target)


def test_error_of_a_failed_copy_has_the_reason(host: LocalTransport, tmp_path: Path) -> None:
    with pytest.raises(FarmError, match=r"host: copy of .* failed: No such file.*bytes are free"):
        host.put(script(tmp_path, ""), f"{host.workdir}/no/folder/x")


def test_close_removes_the_work_folder(tmp_path: Path) -> None:
    transport = LocalTransport("host")
    transport.put(script(tmp_path, ""), f"{transport.workdir}/x")

    transport.close()
    transport.close()

    assert not Path(transport.workdir).exists()


def test_jobs_get_their_files_and_clean_up(host: LocalTransport, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.write_text("seven")
    job = Job(
        script(tmp_path, 'tr a-z A-Z < "$1" > "$2"'),
        args=("in put", "out put"),
        inputs={"in put": data},
        outputs=("out put",),
    )

    result = run_job(host, job, tmp_path / "results")

    assert result.outputs["out put"].read_text() == "SEVEN"
    assert os.listdir(f"{host.workdir}/jobs") == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("echo sorry >&2; exit 4", "program.sh failed: exit status 4: sorry"),
        ("kill -ABRT $$", "program.sh failed: killed by signal SIGABRT"),
        ("true", "program.sh did not write 'out'"),
        ("sleep 60", "did not end within 1 s"),
    ],
)
def test_failing_jobs_report_the_reason_and_clean_up(
    host: LocalTransport, tmp_path: Path, text: str, message: str
) -> None:
    limit = 1 if text == "sleep 60" else 120
    job = Job(script(tmp_path, text), outputs=("out",), time_limit_s=limit)

    with pytest.raises(JobFailed, match=message):
        run_job(host, job, tmp_path)
    assert os.listdir(f"{host.workdir}/jobs") == []


@pytest.mark.parametrize("name", ["", "..", "a/b", "/etc/passwd", "a\0b"])
def test_files_outside_the_job_folder_are_refused(
    host: LocalTransport, tmp_path: Path, name: str
) -> None:
    program = script(tmp_path, "true")

    with pytest.raises(FarmError, match="cannot be a file of a job"):
        run_job(host, Job(program, inputs={name: program}), tmp_path)


def test_an_input_that_is_gone_fails_its_job_alone(host: LocalTransport, tmp_path: Path) -> None:
    job = Job(script(tmp_path, "true"), inputs={"data": tmp_path / "gone"})

    with pytest.raises(JobFailed, match=r"gone cannot be read: No such file"):
        run_job(host, job, tmp_path)


def test_leftovers_are_killed_behind_a_symbolic_link(host: LocalTransport, tmp_path: Path) -> None:
    folder = tmp_path / "real" / "jobs" / "old"
    folder.mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    host.workdir = str(tmp_path / "link")
    with subprocess.Popen(["sleep", "300"], cwd=folder) as leftover:
        clean_board(host)
        assert leftover.wait(60) == -signal.SIGKILL
    assert not folder.exists()


class Swapping(LocalTransport):
    """A machine whose storage changes a file after it has been checked."""

    def put(self, source: Path, target: str, progress: object = None) -> bool:
        sent = super().put(source, target)
        Path(target).write_text("#!/bin/sh\necho other\n")
        return sent


def test_swapped_programs_do_not_run(tmp_path: Path) -> None:
    with (
        closing(Swapping("host")) as host,
        pytest.raises(FarmError, match=r"program in .* is not .*program.sh"),
    ):
        run_job(host, Job(script(tmp_path, "echo mine")), tmp_path)
