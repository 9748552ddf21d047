"""`pockengine profile` prints each kernel with its share of the step, and stores records."""

from pathlib import Path

from click.testing import CliRunner

from pockengine.cli.main import cli
from pockengine.farm.results.results import Record


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
