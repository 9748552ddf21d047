"""The emulated Raspberry Pi 4 over real SSH: one board for all tests, booted once."""

import os
import time
from pathlib import Path

import pytest

from pockengine.errors import FarmError, JobFailed
from pockengine.farm.images.image import ensure_image
from pockengine.farm.jobs.job import Job, run_job
from pockengine.farm.transports.transport import Transport
from pockengine.tests.farm.helpers import HOSTILE, needs_qemu, script

pytestmark = needs_qemu


def test_board_is_a_64_bit_arm_machine_with_four_cores(rpi4: Transport) -> None:
    assert rpi4.run(["uname", "-m"]).stdout == b"aarch64\n"
    assert rpi4.run(["nproc"]).stdout == b"4\n"
    # With page table isolation, emulation is several times slower.
    assert b"page table isolation forced OFF" in rpi4.run(["dmesg"]).stdout


def test_board_has_no_network_access(rpi4: Transport) -> None:
    assert rpi4.run(["ip", "route"]).stdout == b"10.0.2.0/24 dev eth0 scope link  src 10.0.2.15 \n"
    assert not rpi4.run(["nc", "-w", "2", "10.0.2.2", "22"], timeout_s=120).ok


def test_output_and_status_are_returned(rpi4: Transport) -> None:
    result = rpi4.run(["sh", "-c", "echo out; echo err >&2; exit 3"])

    assert (result.stdout, result.stderr, result.status) == (b"out\n", b"err\n", 3)


def test_large_output_is_returned_whole(rpi4: Transport) -> None:
    seen = bytearray()
    result = rpi4.run(
        ["sh", "-c", "seq 200000; seq 50000 >&2"],
        sink=lambda stream, data: seen.extend(data if stream == "stdout" else b""),
    )
    assert seen == result.stdout

    assert result.stdout.split()[-1] == b"200000"
    assert result.stderr.count(b"\n") == 50_000


@pytest.mark.parametrize("name", ["SEGV", "ABRT", "KILL", "FPE"])
def test_error_names_the_signal_that_ended_a_command(rpi4: Transport, name: str) -> None:
    result = rpi4.run(["sh", "-c", f"echo before; kill -{name} $$"])

    assert (result.signal, result.status, result.stdout) == (f"SIG{name}", None, b"before\n")


def test_signals_without_a_name_are_reported(rpi4: Transport) -> None:
    result = rpi4.run(["sh", "-c", "kill -BUS $$"])  # dropbear names only the signals of RFC 4254

    assert (result.signal, result.status, result.ok) == ("SIG?", None, False)


def test_arguments_arrive_unchanged(rpi4: Transport) -> None:
    result = rpi4.run(["printf", "%s|", *HOSTILE])

    assert result.stdout.decode() == "".join(f"{text}|" for text in HOSTILE)
    assert not rpi4.run(["test", "-e", "/tmp/pwned"]).ok


def test_hanging_commands_are_killed(rpi4: Transport) -> None:
    start = time.monotonic()

    with pytest.raises(JobFailed, match=r"rpi4-qemu: 'sleep' did not end within 1 s"):
        rpi4.run(["sleep", "54321"], timeout_s=1)

    assert time.monotonic() - start < 300
    assert b"54321" not in rpi4.run(["ps"]).stdout


def test_jobs_with_hostile_names_run_and_clean_up(rpi4: Transport, tmp_path: Path) -> None:
    names = [name for name in HOSTILE if "/" not in name]
    files = {}
    for i, name in enumerate(names):
        files[name] = tmp_path / str(i)
        files[name].write_text(f"content {i}\n")
    job = Job(
        script(tmp_path, 'for name in "$@"; do cat "./$name" >> "./out $"; done'),
        args=tuple(names),
        inputs=files,
        outputs=("out $",),
    )

    result = run_job(rpi4, job, tmp_path / "results")

    lines = result.outputs["out $"].read_text().splitlines()
    assert lines == [f"content {i}" for i in range(len(names))]
    assert rpi4.run(["ls", f"{rpi4.workdir}/jobs"]).stdout == b""


def test_jobs_killed_by_a_signal_name_it_and_clean_up(rpi4: Transport, tmp_path: Path) -> None:
    job = Job(script(tmp_path, "echo 'bad pointer' >&2; kill -SEGV $$"))

    with pytest.raises(
        JobFailed, match=r"program.sh failed: killed by signal SIGSEGV: bad pointer"
    ):
        run_job(rpi4, job, tmp_path)
    assert rpi4.run(["ls", f"{rpi4.workdir}/jobs"]).stdout == b""


def test_files_round_trip_and_are_sent_once(rpi4: Transport, tmp_path: Path) -> None:
    source = tmp_path / "data"
    source.write_bytes(os.urandom(300_000))
    target = f"{rpi4.workdir}/data"

    assert rpi4.put(source, target)
    assert not rpi4.put(source, target)
    rpi4.get(target, tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == source.read_bytes()


def test_error_for_a_full_disk_names_board_path_and_bytes(rpi4: Transport, tmp_path: Path) -> None:
    filler, source = f"{rpi4.workdir}/filler", tmp_path / "weights"
    source.write_bytes(os.urandom(400_000))
    rpi4.run(["sh", "-c", f"cat /dev/zero > {filler}"])  # until the disk is full
    try:
        with pytest.raises(FarmError, match=r"rpi4-qemu: disk full: weights needs 400000 bytes"):
            rpi4.put(source, f"{rpi4.workdir}/weights")
    finally:
        rpi4.run(["rm", filler])

    assert rpi4.put(source, f"{rpi4.workdir}/weights")


def test_jobs_that_fill_the_disk_fail_alone(rpi4: Transport, tmp_path: Path) -> None:
    job = Job(script(tmp_path, "cat /dev/zero > big"), outputs=("big",))

    with pytest.raises(JobFailed, match=r"status 153: File size limit exceeded"):
        run_job(rpi4, job, tmp_path)
    assert rpi4.run(["ls", f"{rpi4.workdir}/jobs"]).stdout == b""


def test_jobs_that_exceed_memory_are_killed_and_the_board_survives(
    rpi4: Transport, tmp_path: Path
) -> None:
    job = Job(script(tmp_path, "exec tail -c 2000000000 /dev/zero"))

    with pytest.raises(JobFailed, match=r"killed by signal SIGKILL|out of memory|exit status 1"):
        run_job(rpi4, job, tmp_path)
    assert rpi4.run(["true"]).ok


def test_private_key_of_the_board_is_private(rpi4: Transport) -> None:
    images = ensure_image().initrd.parent.parent  # the key is in the RAM disk

    assert images.stat().st_mode & 0o077 == 0
