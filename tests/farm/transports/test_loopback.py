"""The loopback host in front of a processor without an operating system."""

import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pockengine.errors import BoardRefused, BoardUnreachable, JobFailed
from pockengine.farm.jobs.job import Job, run_job
from pockengine.farm.transports.loopback import Loopback
from pockengine.farm.transports.powered import PoweredTransport
from pockengine.farm.transports.ssh import connect_ssh
from pockengine.tests.farm.helpers import HOSTILE, eventually, script
from pockengine.tests.farm.ssh_server import new_key


@pytest.fixture(name="host")
def a_host() -> Iterator[Loopback]:
    with closing(Loopback("dsp")) as host:
        host.power("on")
        yield host


def test_arguments_status_and_output_are_returned(host: Loopback) -> None:
    with closing(PoweredTransport(host)) as board:
        result = board.run(["printf", "%s|", *HOSTILE])
        failed = board.run(["sh", "-c", "echo err >&2; exit 3"])

    assert result.stdout.decode() == "".join(f"{text}|" for text in HOSTILE)
    assert (failed.status, failed.stderr) == (3, b"err\n")


def test_jobs_run_through_the_launcher(host: Loopback, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.write_text("content")
    launcher = script(tmp_path, 'echo "launched"; exec "$@"', "launcher.sh")
    job = Job(
        script(tmp_path, 'cat "$1" > out; echo done'),
        args=("data",),
        inputs={"data": data},
        outputs=("out",),
    )

    with closing(PoweredTransport(host, [str(launcher)])) as board:
        result = run_job(board, job, tmp_path / "results")
        left = board.run(["ls", f"{board.workdir}/jobs"]).stdout

    assert result.run.stdout == b"launched\ndone\n"
    assert result.outputs["out"].read_text() == "content"
    assert left == b""


@pytest.mark.parametrize("name", ["SEGV", "ABRT", "XFSZ"])
def test_error_names_the_signal(host: Loopback, name: str) -> None:
    with closing(PoweredTransport(host)) as board:
        assert board.run(["sh", "-c", f"kill -{name} $$"]).signal == f"SIG{name}"


def test_floods_of_output_are_stopped_and_cleaned_up(host: Loopback, tmp_path: Path) -> None:
    job = Job(script(tmp_path, "yes flood"))

    with closing(PoweredTransport(host)) as board:
        with pytest.raises(JobFailed, match=r"printed more than 16777216 bytes and was stopped"):
            run_job(board, job, tmp_path)
        assert eventually(lambda: b"yes flood" not in board.run(["ps", "ax"]).stdout)


def test_other_keys_are_refused(host: Loopback, tmp_path: Path) -> None:
    new_key(tmp_path / "stranger")

    with pytest.raises(BoardRefused, match=r"refuses farm's key"):
        connect_ssh(replace(host.address, key_file=tmp_path / "stranger"))


def test_host_listens_only_on_loopback_until_closed(host: Loopback) -> None:
    address = host.address
    assert address.host == "127.0.0.1"

    host.close()

    assert not address.key_file.exists()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((address.host, address.port), 1)


def test_power_off_ends_and_deletes_everything(host: Loopback, tmp_path: Path) -> None:
    with closing(PoweredTransport(host)) as board:
        board.put(script(tmp_path, "true"), f"{board.workdir}/file")
        board.power("off")
        with pytest.raises(BoardUnreachable, match="switched off"):
            board.run(["true"])

        board.power("on")

        assert not board.run(["test", "-e", f"{board.workdir}/file"]).ok
        assert "test -e" in board.console()
