"""The job commands, with this machine as the board."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pockengine.farm.boards.board import Board, Local, Remote
from pockengine.farm.cli import teller as teller_module
from pockengine.farm.cli.main import cli
from pockengine.farm.cli.teller import Teller
from pockengine.farm.jobs import checkout as checkout_module
from pockengine.farm.jobs.batch import JobVerdict
from pockengine.farm.jobs.checkout import checkout
from pockengine.farm.jobs.leases import Leases
from pockengine.farm.jobs.store import Store
from pockengine.tests.farm.helpers import script


@pytest.fixture(autouse=True)
def temporary_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CONFIG", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))


def farm(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words))


def write_jobs(folder: Path, text: str) -> str:
    script(folder, 'cat "$1" 2>/dev/null; exit "${2:-0}"', "program")
    (folder / "data").write_text("content")
    (folder / "jobs.toml").write_text(text)
    return str(folder / "jobs.toml")


GOOD = "[[job]]\nname = 'good'\nprogram = 'program'\nargs = ['in']\ninputs = { in = 'data' }\n"
LEAST = "[[job]]\nname = 'a'\nprogram = 'program'\n"
BAD = "[[job]]\nname = 'bad'\nprogram = 'program'\nargs = ['in', 3]\n"


def test_an_interrupted_batch_kills_its_job_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    mark = tmp_path / "process"
    text = f"[ -e {mark} ] && exit 0; echo $$ > {mark}.new; mv {mark}.new {mark}; sleep 600"
    script(tmp_path, text, "slow")
    file = tmp_path / "jobs.toml"
    file.write_text("[[job]]\nname = 'slow'\nprogram = 'slow'\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [
        sys.executable,
        "-m",
        "pockengine.farm.cli.main",
        "run",
        str(file),
        "--batch",
        "night",
    ]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as client:
        while not mark.exists():
            assert client.poll() is None
            time.sleep(0.05)
        client.send_signal(signal.SIGTERM)

    assert client.returncode == 128 + signal.SIGTERM
    assert not Path(f"/proc/{mark.read_text().strip()}").exists()
    assert not list((tmp_path / "temporary").iterdir())
    monkeypatch.delenv("TMPDIR")
    again = farm("run", str(file), "--batch", "night")
    assert "host passed" in again.output
    assert again.exit_code == 0


def test_batch_is_run_listed_and_resumed(tmp_path: Path) -> None:
    file = write_jobs(tmp_path, GOOD + BAD)

    result = farm("run", file, "--batch", "night")
    again = farm("run", file, "--batch", "night")

    assert result.exit_code == again.exit_code == 1
    assert "batch night: 2 jobs, 1 board" in result.output
    assert "host passed" in result.output
    for line in ("host: examining its health", "host: runs good, attempt 1, logs in "):
        assert line in result.output
    assert "exit status 3" in result.output
    logs = tmp_path / "DATA" / "pockengine" / "runs" / "night"
    assert (logs / "good.1" / "stdout").read_text() == "content"
    assert not (logs / "good.2").exists()
    assert "program" in (logs / "good.1" / "ssh.jsonl").read_text()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("outputs = ['sub/answer']", "'sub/answer' cannot be a file of a job"),
        ("inputs = { program = 'data' }", "an input cannot be named 'program'"),
        ("time_limit_s = nan", "time_limit_s must be a positive number of seconds, not nan"),
        ("time_limit_s = inf", "time_limit_s must be a positive number"),
        ("time_limit_s = -5", "time_limit_s must be a positive number"),
    ],
)
def test_faulty_jobs_are_refused_before_any_board(
    tmp_path: Path, setting: str, message: str
) -> None:
    file = write_jobs(tmp_path, f"[[job]]\nname = 'a'\nprogram = 'program'\n{setting}\n")

    result = farm("run", file)

    assert result.exit_code == 1
    assert f"{file}: job 1: {message}" in result.output
    assert json.loads(farm("quarantine", "--json").output) == []


def test_program_output_is_shown_verbatim(tmp_path: Path) -> None:
    file = write_jobs(tmp_path, BAD)
    script(tmp_path, "echo '[/red] :smile: [bold]' >&2; exit 3", "program")

    result = farm("run", file)

    assert "[/red] :smile: [bold]" in result.output.replace("\n", " ")


def test_output_of_failed_jobs_is_stored_and_shown(tmp_path: Path) -> None:
    file = write_jobs(tmp_path, GOOD + BAD)
    script(tmp_path, "echo far; echo 'too \033[31mhot' >&2; exit ${2:-0}", "program")

    result = farm("run", file, "--batch", "night")
    again = farm("jobs", "night")

    log = tmp_path / "DATA" / "pockengine" / "runs" / "night" / "bad.1"
    assert (log / "stdout").read_text() == "far\n"
    for output in (result.output, again.output):
        assert f"bad, the end of {log / 'stderr'}:" in output
        assert "too \N{REPLACEMENT CHARACTER}[31mhot" in output
        assert "good, the end" not in output


def test_batches_are_listed_and_unknown_names_reported(tmp_path: Path) -> None:
    assert farm("jobs").output == "no batch was run yet\n"
    farm("run", write_jobs(tmp_path, GOOD), "--batch", "night")

    assert farm("jobs").output == "night: 1 jobs, 0 open\n"
    assert "no batch 'day'; known: night" in farm("jobs", "day").output
    assert farm("log").output.endswith("yet\n")


def test_lists_are_printed_as_json(tmp_path: Path) -> None:
    farm("run", write_jobs(tmp_path, GOOD), "--batch", "night")
    farm("quarantine", "desk", "--reason", "it hums")

    def listed(*command: str) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = json.loads(farm(*command, "--json").output)
        return rows

    assert listed("jobs") == [{"batch": "night", "jobs": 1, "open": 0}]
    (verdict,) = listed("jobs", "night")
    assert (verdict["name"], verdict["verdict"]) == ("good", "passed")
    (shut,) = listed("quarantine")
    assert (shut["board"], shut["reason"]) == ("desk", "it hums")
    assert "it hums" in str(listed("log", "desk")[-1]["text"])
    assert listed("leases") == []


def test_job_changes_are_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    tell = Teller({})
    waiting = JobVerdict("good", None, "", ())
    running = JobVerdict("good", None, "", (("host", "running"),))
    passed = JobVerdict("good", "passed", "", (("host", "passed"),))

    for state in (waiting, running, running, passed):
        tell([state])

    assert capsys.readouterr().out == "good: open (host running)\ngood: passed (host passed)\n"


def test_quiet_batches_report_what_boards_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tell = Teller({"pi": ("connecting", time.monotonic() - 40)})
    tell([])
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(teller_module, "QUIET_S", 0.0)
    tell([])

    assert capsys.readouterr().out == "pi: connecting (for 40 s)\n"


def test_job_output_is_shown_while_it_runs(tmp_path: Path) -> None:
    """The job waits for a file that this test creates after it sees the first line."""
    go = tmp_path / "go"
    file = write_jobs(tmp_path, f"[[job]]\nname='slow'\nprogram='program'\nargs=['{go}']\n")
    script(tmp_path, 'echo "first ä"; until [ -e "$1" ]; do sleep 0.05; done', "program")
    command = [sys.executable, "-m", "pockengine.farm.cli.main", "run", file, "--out", "logs"]
    seen = []
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as farm:
        assert farm.stdout is not None
        for line in farm.stdout:
            seen.append(line)
            if "slow | " in line:
                assert (tmp_path / "logs/slow.1/stdout").read_bytes() == b"first \xc3\xa4\n"
                go.touch()

    assert "slow | first ä\n" in seen, seen
    assert farm.returncode == 0


def test_job_names_cannot_escape_the_folder(tmp_path: Path) -> None:
    result = farm("run", write_jobs(tmp_path, GOOD.replace("'good'", "'../../x'")))

    assert result.exit_code == 1
    assert "'../../x' cannot name a job" in result.output


def test_passing_batch_exits_with_0(tmp_path: Path) -> None:
    result = farm("run", write_jobs(tmp_path, GOOD))

    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD + "outputs = ['stdout']", "outputs: a log is named stdout"),
        ("", "no [[job]]; begin each job with this line"),
        ("[[job", "cannot read the jobs"),
        ("job = 3", "no [[job]]"),
        ("[[job]]\nname = 'a'", "job 1: name and program are needed"),
        ("[[job]]\nname = 'a'\nprogram = 'program'\ncolor = 1", "unknown color"),
        ("[[job]]\nname = 'a'\nprogram = 'nosuch'", "there is no file"),
        (
            "[[job]]\nname = 'a'\nprogram = 'program'\ninputs = { 'x' = '.' }",
            "is a folder; name its files one by one",
        ),
        ("[[job]]\nname = 'a'\nprogram = 'program'\ndevice = 'x'", "no board for device 'x'"),
        (GOOD + GOOD, "two jobs have one name"),
        (LEAST + "inputs = 3", "inputs must be a table of files by name"),
        (LEAST + "inputs = ['x']", "not ['x']"),
        (LEAST + "args = '--all'", "args must be a list, not '--all'"),
        (GOOD + "outputs = 'note.txt'", "outputs must be a list of names, not 'note.txt'"),
        (GOOD + "tags = 'fast'", "tags must be a list of texts, not 'fast'"),
        (GOOD + "time_limit_s = '60'", "time_limit_s must be a number of seconds, not '60'"),
        (GOOD + "priority = 1.5", "priority must be an integer, not 1.5"),
    ],
)
def test_error_for_an_invalid_file_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    result = farm("run", write_jobs(tmp_path, text))

    assert result.exit_code == 1
    assert message in " ".join(result.output.split())
    assert "Traceback" not in result.output


def test_boards_are_quarantined_and_released() -> None:
    assert farm("quarantine", "host", "--reason", "it hums").exit_code == 0
    assert "it hums" in farm("quarantine").output
    assert farm("quarantine", "host", "--release").output == "no board is in quarantine\n"
    assert "released from quarantine" in farm("log", "host").output
    assert farm("quarantine", "host", "--release").exit_code == 1
    assert farm("quarantine", "--reason", "x").exit_code == 1


def test_leases_are_listed() -> None:
    leases = Leases(Store())
    with leases.lease(["desk"]):
        assert "desk" in farm("leases").output
    leases.close()

    assert farm("leases").output == "no board is leased\n"


def test_shelf_boards_are_leased_while_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkout_module, "connect", nullcontext)  # its use does not matter here
    shelf = Board("desk", "rpi4", Remote("h", "u", "k", "ssh-ed25519 AAAA"))
    here = Board("host", "host", Local())

    with checkout(shelf), checkout(here):
        output = farm("leases").output

    assert "desk" in output
    assert "host since" not in output
    assert farm("leases").output == "no board is leased\n"


@pytest.mark.parametrize(
    "command",
    [
        ["jobs"],
        ["leases"],
        ["log"],
        ["quarantine"],
        ["results"],
        ["history", "step_ms"],
        ["compare"],
    ],
    ids=" ".join,
)
def test_reading_creates_no_database(command: list[str], tmp_path: Path) -> None:
    file = tmp_path / "farm.sqlte"

    result = farm(*command, "--database", f"sqlite:///{file}")

    assert result.exit_code == 1
    assert "farm.sqlte: there is no such file" in result.output
    assert not file.exists()
