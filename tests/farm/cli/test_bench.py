"""The whole bench on this machine and its command line; the emulated board's run is the bench's."""

from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from pockengine.errors import BoardUnreachable, FarmError, JobFailed
from pockengine.farm.bench import flow as bench_flow
from pockengine.farm.bench.case import Case, make_case
from pockengine.farm.bench.peers import HostPeers
from pockengine.farm.bench.run import train_on_board
from pockengine.farm.boards.board import Board
from pockengine.farm.cli.bench import main
from pockengine.farm.results.results import Record, Results
from pockengine.farm.transports.local import LocalTransport
from pockengine.tests.farm.helpers import script

MODEL = "mobilenet_v2-0.1-64"


@pytest.fixture
def no_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the timing out: it starts three frameworks."""
    monkeypatch.setattr(HostPeers, "measure", lambda *_: [])


def bench(folder: Path, *arguments: str) -> tuple[int, str]:
    database = f"sqlite:///{folder / 'results.sqlite'}"
    common = ["--device=host", f"--model={MODEL}", "--steps=2", "--threads=1"]
    result = CliRunner().invoke(main, [*common, f"--database={database}", *arguments])
    return result.exit_code, result.output


@pytest.mark.usefixtures("no_peers")
def test_two_schemes_train_are_checked_and_stored(tmp_path: Path) -> None:
    json = tmp_path / "records.jsonl"

    status, output = bench(tmp_path, "--scheme=full", "--scheme=bias-only", f"--json={json}")

    assert status == 0, output
    records = Results(f"sqlite:///{tmp_path / 'results.sqlite'}").find()
    assert [Record.from_json(line) for line in json.read_text().splitlines()] == records
    assert {record.scheme for record in records} == {"full", "bias-only"}
    errors = [record for record in records if record.metric == "max_rel_error"]
    assert all(record.ok and record.value < 1e-3 for record in errors)
    arena = {record.scheme: record.value for record in records if record.metric == "arena_bytes"}
    assert arena["bias-only"] < arena["full"]


@pytest.mark.usefixtures("no_peers")
def test_a_scheme_that_fails_does_not_hide_the_others(tmp_path: Path) -> None:
    status, output = bench(tmp_path, "--scheme=nonsense", "--scheme=bias-only")

    assert status == 1
    assert "FAILED nonsense: unknown scheme 'nonsense'" in output
    assert "bias-only" in output.split("FAILED")[0]


@pytest.mark.usefixtures("no_peers")
def test_wrong_numbers_fail_the_bench_and_show_no_speed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = bench_flow._reference
    monkeypatch.setattr(
        bench_flow, "_reference", lambda data: ([x * 1.01 for x in train(data)[0]], train(data)[1])
    )

    status, output = bench(tmp_path, "--scheme=full")

    assert status == 1
    assert "FAILED full: the loss of step 1 is off by" in output
    stored = Results(f"sqlite:///{tmp_path / 'results.sqlite'}").find()
    assert not any(record.ok for record in stored)


def test_two_schemes_of_one_name_are_refused(tmp_path: Path) -> None:
    status, output = bench(tmp_path, "--scheme=full", "--scheme=full")

    assert status == 1
    assert "two schemes have one name: full, full" in output


def test_an_unknown_device_lists_the_known_ones(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["--device=rpi9"])

    assert result.exit_code == 1
    assert "no board for device 'rpi9'" in result.output
    assert "rpi4" in result.output


def test_of_all_boards_one_that_cannot_be_reached_does_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached: list[str] = []

    def bench(board: Board, *_: object) -> int:
        reached.append(board.device)
        if board.device == "rpi4":
            raise BoardUnreachable(f"{board.name} does not answer")
        return 0

    monkeypatch.setattr("pockengine.farm.cli.bench._on", bench)
    result = CliRunner().invoke(main, ["--device=all"])

    assert result.exit_code == 1
    assert reached.index("rpi4") < len(reached) - 1
    assert "FAILED rpi4-qemu: rpi4-qemu does not answer" in result.output
    assert "apple-m1: not measured: the inventory has no board of it" in result.output


def test_the_boards_are_listed() -> None:
    result = CliRunner().invoke(main, ["--list"])

    assert result.exit_code == 0
    assert "rpi4-qemu" in result.output


@pytest.fixture(scope="module")
def case() -> Case:
    return make_case(MODEL, batch=2, steps=1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("echo hello; touch tuned", "the program printed b'hello' instead of its report"),
        ("touch tuned", "ended without its last line"),
        ("kill -SEGV $$", "killed by signal SIGSEGV"),
    ],
)
def test_a_program_that_does_not_report_fails_the_run(
    case: Case, tmp_path: Path, text: str, message: str
) -> None:
    artifact = case.compile("bias-only", "host", tmp_path / "artifact").artifact
    program = script(tmp_path, text)
    artifact.executable.write_bytes(program.read_bytes())

    with closing(LocalTransport("host")) as board, pytest.raises(JobFailed, match=message):
        train_on_board(board, artifact, case.data, 1, tmp_path)


def test_a_scheme_becomes_the_references_channels(case: Case, tmp_path: Path) -> None:
    scheme = tmp_path / "scheme.toml"
    scheme.write_text('[params]\n"features.2.conv.0.0.weight" = [0, 3]\n"classifier.1.*" = "full"')

    trainable = case.for_scheme(str(scheme)).job.trainable

    assert trainable is not None
    assert trainable["features.2.conv.0.0.weight"] == (0, 3)
    assert trainable["classifier.1.weight"] is None


def test_a_scheme_that_no_reference_can_train_is_an_error(case: Case, tmp_path: Path) -> None:
    scheme = tmp_path / "scheme.toml"
    scheme.write_text('[params]\n"features.2.conv.0.0.weight" = { channels = [0, 3] }')

    with pytest.raises(FarmError, match="trains 2 channels with gaps between"):
        case.for_scheme(str(scheme))
    scheme.write_text('[params]\n"features.2.conv.0.0.weight" = { lora = 2, alpha = 4 }')
    with pytest.raises(FarmError, match="trains 1 adapters, which the bench's references do not"):
        case.for_scheme(str(scheme))
