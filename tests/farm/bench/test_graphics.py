"""The bench on a GPU: an emulated Jetson with a fake driver, and refused requests."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

from pockengine.backends.cache import own_cache
from pockengine.errors import FarmError
from pockengine.farm.bench import flow, graphics
from pockengine.farm.cli.bench import main
from pockengine.farm.gpu import opencl, vulkan
from pockengine.farm.gpu.driver_device import DriverDevice
from pockengine.farm.results.results import Record
from pockengine.tests.backends.gpu.watched_opencl import has_opencl
from pockengine.tests.backends.gpu.watched_vulkan import has_vulkan
from pockengine.tests.farm.helpers import needs_qemu

NET, LARGER, TEXT = "cnn-16", "mobilenet_v2-0.1-32", "llama-260k-4"
JETSON = ("--device=jetson-orin", "--scheme=bias-only", "--steps=2", f"--model={NET}")


DRIVERS = {"opencl": ("OpenCL", has_opencl), "vulkan": ("Vulkan", has_vulkan)}


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


@pytest.mark.parametrize("backend", DRIVERS)
def test_local_driver_matches_pytorch(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, has_driver = DRIVERS[backend]
    if not has_driver():
        pytest.skip(f"this machine has no {name} (./bazelw installs one)")
    monkeypatch.setenv("POCL_CACHE_DIR", str(own_cache() / "pocl"))
    monkeypatch.setenv("MESA_SHADER_CACHE_DIR", str(own_cache() / "mesa"))
    found = name, lambda: DriverDevice("Chip", is_gpu=False)
    monkeypatch.setitem(graphics.DRIVERS, backend, found)
    path = tmp_path / "records.jsonl"
    arguments = (f"--device=host-{backend}", *JETSON[1:], f"--json={path}")
    status, output = bench(tmp_path, *arguments, by="--suite=gpu")
    assert status == 0, output
    assert f"This machine's {name} has no GPU: its Chip ran the kernels" in " ".join(output.split())
    records = [Record.from_json(line) for line in path.read_text().splitlines()]
    metrics = {record.metric: record for record in records}
    assert {(record.engine, record.device) for record in records} == {
        (f"pockengine-{backend}", f"host-{backend}")
    }
    assert metrics["max_rel_error"].ok
    assert metrics["max_rel_error"].value < 1e-3
    assert "step_ms" not in metrics


@pytest.mark.parametrize(
    ("driver", "words"),
    [
        (opencl, "this machine has no OpenCL: install ocl-icd"),
        (vulkan, "this machine has no Vulkan: install libvulkan1"),
    ],
)
def test_error_names_missing_driver(
    driver: ModuleType, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "LIBRARIES", ("libnone.so",))
    with pytest.raises(FarmError, match=words):
        driver.first_device()


@pytest.mark.parametrize(
    ("driver", "has_driver"), [(opencl, has_opencl), (vulkan, has_vulkan)], ids=DRIVERS
)
def test_first_device_has_a_name(
    driver: ModuleType, has_driver: Callable[[], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_driver():
        pytest.skip("this machine has no such driver")
    monkeypatch.setenv("POCL_CACHE_DIR", str(own_cache() / "pocl"))  # without one, no device
    assert driver.first_device().name


@pytest.mark.nightly
@needs_qemu
def test_suite_trains_each_model_and_names_the_device(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    options = (*JETSON, f"--model={LARGER}", f"--model={TEXT}", "--batch=2", f"--json={path}")
    status, output = bench(tmp_path, *options, by="--suite=gpu")
    assert status == 0, output
    assert output.count("The GPU is emulated") == 3
    records = [Record.from_json(line) for line in path.read_text().splitlines()]
    assert {(record.model, record.dataset) for record in records} == {
        (NET, "scikit-learn sample photographs"),
        (LARGER, "scikit-learn sample photographs"),
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
