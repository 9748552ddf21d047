"""`pockengine compile-time` prints every stage and stores a record of each."""

from pathlib import Path

from click.testing import CliRunner

from pockengine.cli.compile_time import COMPILER, STAGES, WHOLE
from pockengine.cli.main import cli
from pockengine.farm.results.results import Record


def test_compile_time_prints_stages_and_writes_records(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    small = ["cnn-8", "--device", "stm32f746"]  # its runtime has the fewest files
    arguments = ["compile-time", *small, "--repeat", "2", "--json", str(file)]

    result = CliRunner().invoke(cli, arguments)

    assert result.exit_code == 0, result.output
    assert "train.fuse" in result.output
    records = [Record.from_json(line) for line in file.read_text().splitlines()]
    assert [str(record.note).split(";")[0] for record in records] == [*STAGES, COMPILER, WHOLE]
    assert {(record.metric, record.unit) for record in records} == {("compile_s", "s")}
    seconds = {str(record.note).split(";")[0]: record.value for record in records}
    assert seconds[WHOLE] >= max(seconds[stage] for stage in STAGES)
    assert seconds[COMPILER] > 0
