"""The bench on this machine, and its command line."""

import errno
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pytest
from click.testing import CliRunner

from pockengine.backends.session import MOST_THREADS
from pockengine.compiler.sparse.presets import PRESETS
from pockengine.errors import BoardUnreachable, FarmError, JobFailed
from pockengine.farm.bench import flow as bench_flow
from pockengine.farm.bench import peers as bench_peers
from pockengine.farm.bench.case import Case, make_case, train_in_torch
from pockengine.farm.bench.peers import HostPeers
from pockengine.farm.bench.run import train_on_board
from pockengine.farm.boards.board import Board
from pockengine.farm.cli import bench_stores
from pockengine.farm.cli.bench import main
from pockengine.farm.references.job import JobData
from pockengine.farm.references.worker import Refused
from pockengine.farm.results.results import Record, Results, write_lines
from pockengine.farm.transports.local import LocalTransport
from pockengine.models.decoders import SIZES
from pockengine.models.registry import FAMILIES
from pockengine.options import CompileOptions
from pockengine.tests.farm.helpers import record, script
from pockengine.tests.farm.results.repository import git

MODEL, WEIGHT, DEEP = "cnn-16", "block1.conv1.0.weight", "mobilenet_v2-0.1-64"


@pytest.fixture
def no_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the timing of peers, which starts three frameworks."""
    monkeypatch.setattr(HostPeers, "measure", lambda *_: [])


def bench(folder: Path, *arguments: str) -> tuple[int, str]:
    database = f"sqlite:///{folder / 'results.sqlite'}"
    common = {"--device": "host", "--model": MODEL, "--steps": "2", "--threads": "1"}
    named = {argument.partition("=")[0] for argument in arguments}
    defaults = [f"{name}={value}" for name, value in common.items() if name not in named]
    result = CliRunner().invoke(main, [*defaults, f"--database={database}", *arguments])
    return result.exit_code, result.output


@pytest.mark.usefixtures("no_peers")
def test_two_schemes_train_are_checked_and_stored(tmp_path: Path) -> None:
    """Losses of a deep net are comparable only from the weights of `make_case`."""
    json = tmp_path / "records.jsonl"
    how = (f"--model={DEEP}", "--scheme=full", "--scheme=bias-only", f"--json={json}")
    status, output = bench(tmp_path, *how)
    assert status == 0, output
    records = Results(f"sqlite:///{tmp_path / 'results.sqlite'}").find()
    assert [Record.from_json(line) for line in json.read_text().splitlines()] == records
    assert {record.scheme for record in records} == {"full", "bias-only"}
    errors = [record for record in records if record.metric == "max_rel_error"]
    assert all(record.ok and record.value < 1e-3 for record in errors)
    arena = {record.scheme: record.value for record in records if record.metric == "arena_bytes"}
    assert arena["bias-only"] < arena["full"]


@pytest.mark.skipif(shutil.which("node") is None, reason="apt-get install nodejs for WebAssembly")
def test_ten_steps_in_node_match_pytorch(tmp_path: Path) -> None:
    json = tmp_path / "records.jsonl"
    how = ("--device=wasm32", "--model=cnn-8", "--steps=10", "--scheme=full", f"--json={json}")

    status, output = bench(tmp_path, *how)

    assert status == 0, output
    assert "of wall time per step in Node on this machine, of 9 steps" in " ".join(output.split())
    figures = {one.metric: one for one in map(Record.from_json, json.read_text().splitlines())}
    assert figures["max_rel_error"].value < 1e-5
    assert not {"step_ms", "guest_instructions"} & set(figures)


def test_frameworks_without_the_model_are_skipped(
    tmp_path: Path, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(engine: str, *_: object) -> MagicMock:
        if engine == "tf-graph":
            raise Refused("worker: FarmError: no form", "no form")
        return peer

    peer = MagicMock(version="1")
    peer.train.return_value.losses, peer.peak_rss.return_value = [1.0], 1
    peer.step.side_effect = lambda count: [1.0] * count
    peer.__enter__.return_value = peer
    monkeypatch.setattr(bench_peers, "open_worker", opened)
    monkeypatch.setattr(bench_peers, "open_own_worker", lambda *_: peer)
    monkeypatch.setattr(bench_peers, "is_available", lambda _: True)
    with closing(HostPeers(1)) as peers:
        found = peers.measure(MagicMock(), case.data, [1.0], tmp_path)

    assert [one.engine for one in found] == ["pockengine", "torch-eager", "torch-eager-cl-malloc"]
    assert peers.refused == {"tf-graph": "no form"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scheme=nonsense", "--scheme=bias-only"], "unknown scheme 'nonsense'; presets: full"),
        (["--scheme=none.toml"], "none.toml: .*No such file"),
        (["--scheme=sparse-90-91"], "scheme sparse-90-91: the model has blocks 0 to"),
        (["--scheme=full", "--scheme=full"], "two schemes have one name: full, full"),
        (["--model=nonsense"], "unknown model 'nonsense'; known: .*vit_tiny$"),
        (["--suite=llm", "--model=nonsense"], "no decoder that is known here .*llama2-7b"),
        (["--suite=llm", "--scheme=bias-only", "--model=llama-110m"], "use full, lora, sparse"),
        (["--suite=llm", "--engine=x", "--model=llama-110m"], "no engine 'x'; use pockengine, "),
        (["--suite=llm", "--bf16"], "--bf16 does not go with --suite=llm; it is for --suite=peers"),
        (["--reference=tensorflow"], "--reference does not go with a run without --suite; it is f"),
        (["--suite=paper", "--steps=3"], "--steps does not go with --suite=paper; it is for a run"),
        (["--out=x"], "--out needs --baseline"),
        (["--batch=1000000000"], r"take 2,\d+ GB; this machine has .*: lower --batch or --steps"),
        (["--model=distilbert-128", "--batch=1000000000"], "take 2,048 GB; .* lower --batch"),
        (["--model=net:small_net"], "trains listed models .* and not net:small_net"),
        (["--device=rpi9"], "no board for device 'rpi9'; known devices and boards: .*rpi4"),
        (["--device=apple-m1"], "apple-m1 has no board.* built and inspected, not run.*compile"),
    ],
)
def test_impossible_runs_are_refused_before_data_and_boards_are_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.delattr("pockengine.farm.bench.case._batches")
    monkeypatch.delattr("pockengine.farm.bench.flow.checkout")

    status, output = bench(tmp_path, *arguments)

    assert status == 1
    assert re.search(message, output), output


@pytest.mark.parametrize("suite", ["llm", "generation"])
def test_decoders_are_models_of_their_suites_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suite: str
) -> None:
    run = []

    def run_suite(chosen: object, _: object) -> int:
        run.append(chosen)
        return 0

    monkeypatch.setattr("pockengine.farm.cli.bench_board.run_suite", run_suite)
    monkeypatch.setattr("pockengine.farm.cli.bench_llm.why_missing", lambda _: None)
    words = ["--device=host", f"--suite={suite}", "--model=llama-110m"]
    result = CliRunner().invoke(main, [*words, f"--database=sqlite:///{tmp_path / 'results'}"])

    assert (result.exit_code, len(run)) == (0, 1), result.output


def test_invalid_names_are_refused_before_heavy_imports() -> None:
    wrong = ("--model=resnet20-3", "--scheme=nonsense", "--device=rpi9")
    program = f"""
import sys
from click.testing import CliRunner
from pockengine.farm.cli.bench import main
from pockengine.options import CompileOptions
for argument in {wrong}:
    assert CliRunner().invoke(main, [argument]).exit_code == 1, argument
print(sorted({{"PIL", "sklearn", "sqlalchemy", "torch"}} & set(sys.modules)))
for argument in ("--model=nonsense", "--scheme=bias-only", "--engine=nonsense"):
    assert CliRunner().invoke(main, ["--suite=llm", argument]).exit_code == 1, argument
print(sorted({{"torch", "transformers"}} & set(sys.modules)))
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["[]", "[]"]


def test_help_names_every_model() -> None:
    output = CliRunner().invoke(main, ["--help"]).output
    assert not [name for name in (*FAMILIES, *SIZES, *PRESETS) if name not in output]


def test_error_for_a_small_device_lists_what_fits_before_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("pockengine.farm.bench.flow.checkout")

    large = ("--device=stm32f746", "--model=cnn-28", "--batch=64", "--scheme=full")
    status, output = bench(tmp_path, *large)

    assert status == 1
    assert "no scheme of cnn-28, batch 64, fits stm32f746" in output
    found = re.search("This fits: (.*)", output)
    assert found
    options = dict(part.split("=") for part in found[1].split() if "=" in part)
    case = make_case("cnn-28", int(options["--batch"]), 1)
    case.plan(options["--scheme"], "stm32f746", "--int8" in found[1])


@pytest.mark.usefixtures("no_peers")
def test_records_of_an_interrupted_run_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bench_flow, "_measure", cut)

    bench(tmp_path, "--scheme=bias-only")

    stored = {
        record.metric for record in Results(f"sqlite:///{tmp_path / 'results.sqlite'}").find()
    }
    assert {"max_rel_error", "arena_bytes", "binary_bytes"} <= stored


@pytest.mark.usefixtures("no_peers")
def test_wrong_results_fail_the_bench_and_have_no_speed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = train_in_torch

    def wrong(data: JobData) -> tuple[list[float], dict[str, np.ndarray]]:
        losses, tensors = train(data)
        return [loss * 1.01 for loss in losses], tensors

    monkeypatch.setattr(bench_flow, "train_in_torch", wrong)

    status, output = bench(tmp_path, "--scheme=full")

    assert status == 1
    assert "FAILED full: the loss of step 1 is off by" in output
    stored = Results(f"sqlite:///{tmp_path / 'results.sqlite'}").find()
    assert not any(record.ok for record in stored)


def test_unreachable_board_does_not_hide_others(
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


def test_boards_are_listed() -> None:
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
def test_programs_without_a_report_fail_the_run(
    case: Case, tmp_path: Path, text: str, message: str
) -> None:
    artifact = case.compile(CompileOptions(scheme="bias-only"), tmp_path / "artifact").artifact
    program = script(tmp_path, text)
    artifact.executable.write_bytes(program.read_bytes())

    with closing(LocalTransport("host")) as board, pytest.raises(JobFailed, match=message):
        train_on_board(board, artifact, case.data, 1, tmp_path)


def test_scheme_sets_the_channels_of_the_reference(case: Case, tmp_path: Path) -> None:
    scheme = tmp_path / "scheme.toml"
    scheme.write_text(f'[params]\n"{WEIGHT}" = [0, 3]\n"head.*" = "full"')

    trainable = case.for_scheme(str(scheme)).job.trainable

    assert trainable is not None
    assert trainable[WEIGHT] == (0, 3)
    assert trainable["head.weight"] is None


def test_schemes_that_no_reference_can_train_are_an_error(case: Case, tmp_path: Path) -> None:
    scheme = tmp_path / "scheme.toml"
    scheme.write_text(f'[params]\n"{WEIGHT}" = {{ channels = [0, 3] }}')

    with pytest.raises(FarmError, match="trains 2 channels with gaps between"):
        case.for_scheme(str(scheme))
    scheme.write_text(f'[params]\n"{WEIGHT}" = {{ lora = 2, alpha = 4 }}')
    with pytest.raises(FarmError, match="trains 1 adapters, which the bench's references do not"):
        case.for_scheme(str(scheme))


def test_threads_are_limited_as_in_sessions(tmp_path: Path) -> None:
    most = bench(tmp_path, f"--threads={MOST_THREADS}", "--list")
    one_more = bench(tmp_path, f"--threads={MOST_THREADS + 1}", "--list")

    assert most[0] == 0
    assert one_more[0] == 2
    assert "--threads" in one_more[1]


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--database=sqlite:////nowhere/at/all.sqlite", "there is no folder /nowhere/at"),
        ("--database=sqlite:///{folder}", "unable to open database file"),
        ("--baseline=nosuch", "git does not know 'nosuch' and 'HEAD'"),
        ("--baseline=HEAD", "no stored record of the last"),
        ("--json={folder}", "--json {folder} cannot be written: Is a directory"),
        ("--json=/dev/full", "--json /dev/full cannot be written: No space left on device"),
        ("--json={folder}/file/x", "--json {folder}/file/x cannot be written: "),
        ("--baseline=HEAD --out={folder}/file", "--out {folder}/file cannot be made: File exists"),
    ],
)
def test_stores_that_cannot_be_used_are_refused_before_any_work(
    argument: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "commit", "--quiet", "--allow-empty", "-m", "first")
    monkeypatch.chdir(tmp_path)
    for name in ("_run_bench", "run_peers"):
        monkeypatch.setattr(f"pockengine.farm.cli.bench_board.{name}", MagicMock())
    (tmp_path / "file").touch()

    status, output = bench(tmp_path, *argument.format(folder=tmp_path).split())

    assert status == 1
    assert message.format(folder=tmp_path) in output


def test_a_suite_refuses_damaged_plans_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pockengine.farm.cli.bench_board.run_peers", MagicMock())
    (tmp_path / "tuned.json").write_text("{")
    common = ["--suite=peers", f"--database=sqlite:///{tmp_path}/results.sqlite"]

    result = CliRunner().invoke(main, [*common, f"--tuned={tmp_path}/tuned.json"])

    assert result.exit_code == 1
    assert "tuned.json: Expecting property name" in result.output


def test_a_suite_resumes_by_its_own_records_of_these_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = MagicMock()
    monkeypatch.setattr("pockengine.farm.cli.bench_board.run_peers", suite)
    own = record(device="host", metric="roofline_ms", unit="ms", threads=1, model="a", batch=2)
    others = (
        replace(own, model="other threads", threads=2),
        replace(own, model="other device", device="rpi4"),
        replace(own, model="a run without the suite", metric="step_ms"),
    )
    write_lines([own, *others], tmp_path / "records")
    store = (f"--json={tmp_path}/records", f"--database=sqlite:///{tmp_path}/results.sqlite")

    CliRunner().invoke(main, ["--suite=peers", "--resume", "--threads=1", *store])

    assert suite.call_args[0][0].done == {("a", 2)}


@pytest.mark.usefixtures("no_peers")
def test_a_disk_that_fills_up_loses_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(records: Iterable[Record], path: Path) -> None:
        if records:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(bench_stores, "write_lines", full)

    status, output = bench(tmp_path, "--scheme=full", f"--json={tmp_path}/records")

    assert status == 1
    assert f"--json {tmp_path}/records cannot be written: No space left on device" in output
    assert "Traceback" not in output
    assert Results(f"sqlite:///{tmp_path / 'results.sqlite'}").find()
