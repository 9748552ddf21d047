"""`pockengine passes`: run named passes on a graph file."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from pockengine.cli.main import cli
from pockengine.errors import PockEngineError

GRAPH = """graph g {
  input %x: f32[2,3]
  param %w: f32[3,4]
  %y: f32[2,4] = matmul %x, %w
  %z: f32[2,4] = relu %y
  %l: f32[] = reduce_sum %z {axes=(0, 1)}
  output loss = %l
}
"""


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "graph.ir"
    path.write_text(GRAPH)
    return path


def passes(*arguments: str) -> str:
    result = CliRunner().invoke(cli, ["passes", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


def test_one_pass_runs_on_a_dumped_graph(graph: Path) -> None:
    shown = passes("--pass", "fuse{target=rpi4}", str(graph))
    assert "= fusion %x, %w body matmul {" in shown


def test_the_pipeline_prints_as_passes_that_run(graph: Path, tmp_path: Path) -> None:
    lines = passes("--pipeline", "train", "--device", "rpi4", str(graph)).splitlines()
    assert "differentiate{trained={'w': None}, optimizer=Sgd()}" in lines
    arguments = [part for line in lines for part in ("--pass", line)]
    left = passes(*arguments, str(graph))
    assert "writes=" in left  # the update is fused into its product
    file = tmp_path / "passes.txt"
    file.write_text("\n".join(lines))
    assert passes("--passes", str(file), str(graph)) == left


def test_every_pass_is_listed_with_its_options() -> None:
    assert "recompute{target, memory_budget, others, solver_seconds}" in passes("--list")


def test_an_unknown_entry_is_refused(graph: Path) -> None:
    with pytest.raises(PockEngineError, match="no entry 'tain'; it has train, evaluate"):
        passes("--pipeline", "tain", str(graph))
