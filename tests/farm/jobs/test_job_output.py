import random
import time
from pathlib import Path

import pytest

from pockengine.errors import LogError
from pockengine.farm.jobs.job_output import MOST_A_SECOND, MOST_LINE, Lines, job_output

TEXT = "plain\nä€😀\r\nbar 1%\rbar 2%\r\n\nno end €"


@pytest.mark.parametrize("seed", range(20))
def test_lines_do_not_depend_on_chunk_boundaries(seed: int) -> None:
    data, lines, chance = TEXT.encode(), Lines(), random.Random(seed)
    cuts = sorted(chance.sample(range(len(data)), 12))
    pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]

    shown = [line for piece in pieces for line in lines.take(piece)] + [*lines.take(b"", True)]

    assert shown == ["plain", "ä€😀", "bar 1%", "bar 2%", "", "no end €"]


def test_invalid_utf8_is_replaced() -> None:
    assert [*Lines().take(b"\xff\xfe!\xe2\x82", True)] == ["\ufffd\ufffd!\ufffd"]


def test_endless_lines_are_cut_and_not_buffered() -> None:
    lines = Lines()

    shown = [line for _ in range(100) for line in lines.take(b"x" * 999)]

    assert {len(line) for line in shown} == {MOST_LINE}
    assert len(shown) == 99_900 // MOST_LINE
    assert len(lines._open) < MOST_LINE


def test_large_output_is_written_whole_and_shown_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    times = iter([7.0] * 1000 + [8.0] * 9)
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    with job_output("job", tmp_path / "job.1", shown.append) as sink:
        for number in range(1001):
            sink("stdout", f"{number}\n".encode())
        sink("stderr", b"\xff")

    hidden = 1000 - MOST_A_SECOND
    assert shown[: MOST_A_SECOND + 1] == [
        *(f"job | {number}" for number in range(MOST_A_SECOND)),
        f"job | ... {hidden} lines more, in {tmp_path}/job.1",
    ]
    assert shown[-2:] == ["job | 1000", "job | \ufffd"]
    assert (tmp_path / "job.1/stdout").read_bytes().count(b"\n") == 1001
    assert (tmp_path / "job.1/stderr").read_bytes() == b"\xff"


def test_full_log_disk_is_not_a_board_fault(tmp_path: Path) -> None:
    tmp_path.joinpath("stdout").symlink_to("/dev/full")

    with (
        pytest.raises(
            LogError, match=r"cannot write or show the log in .*: No space left.*--batch"
        ),
        job_output("job", tmp_path, print) as sink,
    ):
        sink("stdout", b"x")
