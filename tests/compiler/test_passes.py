"""Passes on text files that a stranger can read: a graph, the passes to apply, what they leave."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from pockengine.compiler.ir import Graph
from pockengine.compiler.ir.text import parse_graph, print_graph
from pockengine.compiler.ir.verify import verify
from pockengine.compiler.passes.absorb_updates import absorb_updates
from pockengine.compiler.passes.common_subexpressions import common_subexpressions
from pockengine.compiler.passes.dead_code import dead_code
from pockengine.compiler.passes.fold_scales import fold_scales
from pockengine.compiler.passes.fuse import FusionRules, fuse
from pockengine.compiler.passes.schedule import schedule
from pockengine.compiler.passes.simplify import simplify
from pockengine.compiler.passes.tile_attention import tile_attention

RULES = FusionRules(
    frozenset({"matmul", "conv2d"}),
    {"reduce_sum": (0,), "reduce_mean": (0,)},
    frozenset({"matmul"}),
)
PASSES: dict[str, Callable[[Graph], None]] = {
    "absorb_updates": partial(absorb_updates, rules=RULES),
    "common_subexpressions": common_subexpressions,
    "dead_code": dead_code,
    "fold_scales": partial(fold_scales, written=frozenset()),
    "fuse": partial(fuse, rules=RULES),
    "schedule": schedule,
    "simplify": simplify,
    "tile_attention": partial(tile_attention, memory_budget=16 * 32 * 32 * 4),
}
FILES = sorted((Path(__file__).parent / "passes").glob("*.ir"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_pass_leaves_what_the_file_expects(path: Path) -> None:
    before, _, rest = path.read_text().partition("--- expect ")
    names, _, after = rest.partition("\n")
    graph = parse_graph(before)
    for name in names.split():
        PASSES[name](graph)
        verify(graph)
    assert print_graph(graph) == after


def test_there_are_files_for_every_pass() -> None:
    used = {name for path in FILES for name in path.read_text().split("--- expect ")[1].split()}
    assert set(PASSES) <= used
