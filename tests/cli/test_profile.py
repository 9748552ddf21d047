"""`pockengine profile` prints each kernel with its share of the step, and stores records."""

import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from pockengine.backends.cache import own_cache
from pockengine.cli.main import cli
from pockengine.cli.profile_board import ModelledKernel, ModelledStep, print_modelled
from pockengine.errors import CompileError
from pockengine.farm.cycles.modelled import Cycles, modelled
from pockengine.farm.results.results import Record
from pockengine.models.find import find_model
from pockengine.tests.backends.gpu.watched_opencl import has_opencl


def test_profile_prints_kernels_and_writes_records(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    arguments = ["profile", "cnn-8", "--batch", "2", "--threads", "1", "--steps", "3", "--alone"]
    result = CliRunner().invoke(cli, [*arguments, "--json", str(file)])
    assert result.exit_code == 0, result.output
    assert "GFLOP/s" in result.output
    assert "sgd_update" in result.output
    records = [Record.from_json(line) for line in file.read_text().splitlines()]
    assert [record.metric for record in records[:2]] == ["peak_gflops", "peak_gbytes"]
    kernels = [record for record in records if record.metric == "kernel_us"]
    assert len(kernels) > 5
    assert all(record.n == 3 and record.note for record in kernels)
    assert f"in {len(kernels)} calls" in result.output
    refused = CliRunner().invoke(cli, [*arguments, "--only", "nothing"])
    assert refused.exit_code == 2
    assert "contains 'nothing'; leave --only out" in " ".join(refused.output.split())


def test_other_machines_are_refused() -> None:
    result = CliRunner().invoke(cli, ["profile", "cnn-8", "--device", "jetson-orin"])
    assert isinstance(result.exception, CompileError)
    assert "profile times this machine, and not jetson-orin by c; name" in str(result.exception)


def test_a_modelled_step_fits_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    region = modelled("rpi4", 2_000_000, Cycles(1_000_000, 500_000, 200_000, 100_000, 1))
    (node,) = find_model("cnn-8").graph().nodes[:1]
    kernel = ModelledKernel("pe_f32_conv2d_4x8__neon_0123", [(node, region)])
    print_modelled("a step", ModelledStep([kernel], region), "rpi4", top=0, only="")
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    summary = "4.0 M instructions in 1 call of 1 kernel. Modelled for one core of rpi4"
    assert summary in " ".join(printed.split())


@pytest.mark.skipif(shutil.which("qemu-aarch64") is None, reason="apt install qemu-user")
def test_a_boards_time_is_modelled_kernel_by_kernel() -> None:
    arguments = ["profile", "cnn-8", "--batch", "2", "--device", "rpi4", "--top", "0"]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.output.splitlines() if line.startswith("  f32_")]
    total = re.search(
        r"([\d.]+) ms and ([\d.]+) M instructions in ([\d,]+) calls of", result.output
    )
    assert total is not None
    assert len(rows) > 5
    assert sum(int(row[1]) for row in rows) == int(total[3].replace(",", ""))
    shares = [float(row[4].rstrip("%")) for row in rows]
    assert shares == sorted(shares, reverse=True)
    assert 90 < sum(shares) <= 100.5
    assert "Modelled for one core of rpi4, not measured" in " ".join(result.output.split())
    result = CliRunner().invoke(cli, [*arguments, "--alone"])
    assert "the time on rpi4 is modelled, for one thread; leave out --alone" in result.output


def test_a_gpu_is_profiled_against_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POCL_CACHE_DIR", str(own_cache() / "pocl"))
    if not has_opencl():
        pytest.skip("this machine has no OpenCL")
    arguments = ["profile", "cnn-8", "--device", "host-opencl", "--backend", "opencl"]
    result = CliRunner().invoke(cli, [*arguments, "--steps", "2"])
    assert result.exit_code == 0, result.output
    assert "cnn-8, batch 1, full, any by OpenCL by opencl" in result.output
    assert "gpu_conv2d" in result.output
    assert "by its device's file 1,024 GFLOP/s, memory 40.0 GB/s" in result.output
    result = CliRunner().invoke(cli, [*arguments, "--alone"])
    assert "--alone times kernels of C, not of opencl" in result.output
