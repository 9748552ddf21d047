"""The bench on a GPU: an emulated Jetson with a fake driver, and refused requests."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from pockengine.backends.cache import own_cache
from pockengine.errors import FarmError
from pockengine.farm.bench import flow, graphics
from pockengine.farm.cli.bench import main
from pockengine.farm.gpu import opencl
from pockengine.farm.gpu.opencl import OpenClDevice, first_device
from pockengine.farm.results.results import Record
from pockengine.tests.farm.helpers import needs_qemu

NET, TEXT = "mobilenet_v2-0.1-32", "llama-260k-4"
JETSON = ("--device=jetson-orin", "--scheme=bias-only", "--steps=2", f"--model={NET}")


def _has_opencl() -> bool:
    try:
        first_device()
    except FarmError:
        return False
    return True


needs_opencl = pytest.mark.skipif(
    not _has_opencl(), reason="this machine has no OpenCL (./bazelw installs PoCL)"
)


def bench(folder: Path, *arguments: str, by: str = "--backend=cuda") -> tuple[int, str]:
    database = f"--database=sqlite:///{folder / 'results.sqlite'}"
    result = CliRunner().invoke(main, [by, database, *arguments])
    return result.exit_code, result.output


@needs_qemu
def test_emulated_jetson_matches_pytorch(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    status, output = bench(tmp_path, *JETSON, f"--json={path}")
    assert status == 0, output
    assert "The GPU is emulated" in output
    records = [Record.from_json(line) for line in path.read_text().splitlines()]
    metrics = {record.metric: record for record in records}
    assert {(record.engine, record.emulated) for record in records} == {("pockengine-cuda", True)}
    assert metrics["max_rel_error"].ok
    assert metrics["max_rel_error"].value < 1e-3
    assert not {"step_ms", "guest_instructions"} & set(metrics)


@needs_opencl
def test_local_opencl_device_matches_pytorch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POCL_CACHE_DIR", str(own_cache() / "pocl"))
    monkeypatch.setattr(graphics, "first_device", lambda: OpenClDevice("Chip", is_gpu=False))
    path = tmp_path / "records.jsonl"
    arguments = ("--device=host-opencl", *JETSON[1:], f"--json={path}")
    status, output = bench(tmp_path, *arguments, by="--suite=gpu")
    assert status == 0, output
    assert "This machine's OpenCL has no GPU: its Chip ran the kernels" in " ".join(output.split())
    records = [Record.from_json(line) for line in path.read_text().splitlines()]
    metrics = {record.metric: record for record in records}
    assert {(record.engine, record.device) for record in records} == {
        ("pockengine-opencl", "host-opencl")
    }
    assert metrics["max_rel_error"].ok
    assert metrics["max_rel_error"].value < 1e-3
    assert "step_ms" not in metrics


@needs_opencl
def test_the_first_device_is_reported_by_its_name() -> None:
    assert first_device().name


def test_error_names_missing_opencl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opencl, "LIBRARIES", ("libnone.so",))
    with pytest.raises(FarmError, match="this machine has no OpenCL: install ocl-icd"):
        first_device()


@pytest.mark.nightly
@needs_qemu
def test_suite_trains_each_model_and_names_the_device(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    options = (*JETSON, f"--model={TEXT}", "--batch=2", f"--json={path}")
    status, output = bench(tmp_path, *options, by="--suite=gpu")
    assert status == 0, output
    assert output.count("The GPU is emulated") == 2
    records = [Record.from_json(line) for line in path.read_text().splitlines()]
    assert {(record.model, record.dataset) for record in records} == {
        (NET, "scikit-learn sample photographs"),
        (TEXT, "drawn tokens"),
    }
    assert {(record.engine, record.emulated) for record in records} == {("pockengine-cuda", True)}


@needs_qemu
def test_error_names_a_missing_jetson_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "gpu_libraries", lambda *_: {})
    status, output = bench(tmp_path, *JETSON)
    assert status == 1
    assert "FAILED bias-only: jetson-orin-qemu" in output
    assert "this machine has no CUDA driver" in output


@pytest.mark.parametrize("by", ["--backend=cuda", "--suite=gpu"])
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--device=rpi4"], "device rpi4 takes no backend 'cuda'"),
        (["--device=jetson-orin", "--int8"], "--int8"),
    ],
)
def test_unsupported_requests_are_refused_before_anything_starts(
    arguments: list[str], words: str, by: str, tmp_path: Path
) -> None:
    status, output = bench(tmp_path, *arguments, by=by)
    assert status == 1
    assert words in output
    assert "connect" not in output
