"""Passes on text files: a graph, the passes to apply, the expected graph.

`python -m pockengine.tests.compiler.test_passes FILE...` writes the current results into the files;
review them before you commit.
"""

import sys
from pathlib import Path

import pytest

from pockengine.compiler.ir import Graph
from pockengine.compiler.ir.text import parse_graph, print_graph
from pockengine.compiler.passes.base import Pass, run_passes
from pockengine.compiler.passes.catalog import PASSES
from pockengine.compiler.passes.legal.legalize import Legalize
from pockengine.compiler.passes.pass_text import parse_pass, print_pass
from pockengine.compiler.target import FusionRules, Target
from pockengine.errors import CompileError

RULES = FusionRules(
    frozenset({"matmul", "conv2d"}),
    {"reduce_sum": (0,), "reduce_mean": (0,)},
    frozenset({"matmul"}),
    decoding=frozenset({"matmul"}),
)
TARGETS = {
    "gpu": Target(name="gpu", attention=64),
    "test": Target(RULES, name="test"),
    "small": Target(
        name="small",
        ops=frozenset({"add", "sub", "mul", "div", "exp", "reshape", "reduce_sum", "reduce_max"}),
    ),
}
FILES = sorted((Path(__file__).parent / "passes").glob("*.ir"))


def split(path: Path) -> tuple[str, list[Pass], str]:
    """Return the graph, the passes, and the expected graph of a file."""
    before, _, tail = path.read_text().partition("--- expect ")
    line, _, after = tail.partition("\n")
    return before, [parse_pass(text, TARGETS.__getitem__) for text in line.split("; ")], after


def transformed(path: Path) -> Graph:
    """Return the graph of a file after its passes."""
    before, passes, _ = split(path)
    graph = parse_graph(before)
    run_passes(passes, graph, check=True)
    return graph


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_passes_give_the_expected_graph(path: Path) -> None:
    assert print_graph(transformed(path)) == split(path)[2]


def test_every_pass_has_a_file() -> None:
    used = {each.name for path in FILES for each in split(path)[1]}
    assert used == set(PASSES)


@pytest.mark.parametrize(
    "text",
    [
        "dead_code",
        "fuse{target='test'}",
        "infer_only{loss=False}",
        "fold_constants{written=frozenset(('a', 'b',))}",
        "differentiate{trained={'w': range(0, 2), 'b': None}, optimizer=Sgd(momentum=0.5)}",
        "differentiate{trained={'w': (0, 2,)}, optimizer=Scaled(optimizer=Lion(), rate=0.5)}",
        "apply_gradients{trained={}, optimizer=Sgd(), clip=Clip(norm=1e999)}",
    ],
)
def test_pass_text_round_trips(text: str) -> None:
    assert print_pass(parse_pass(text, TARGETS.__getitem__)) == text


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("fuze", "there is no pass 'fuze'; the passes are absorb_updates"),
        ("fuse", "pass fuse needs target: the name of a device; write fuse{target=...}"),
        ("differentiate{trained={}}", "needs optimizer: a call of .*Adadelta, .*Sgd"),
        ("dead_code{x=1}", "pass dead_code has no option x; it takes none"),
        ("tile_channels{bytes=1}", "has no option bytes; its options are memory_budget"),
        ("dead_code{1}", "options are NAME=VALUE"),
        ("infer_only{loss=open('x')}", "is no literal"),
        ("infer_only{loss=}", "options are NAME=VALUE"),
        ("infer_only{loss='no'}", "pass infer_only: option loss takes True or False, not 'no'"),
        ("tile_channels{memory_budget=1.5}", "memory_budget takes a whole number, not 1.5"),
        ("store_trained{names=('w',)}", r"names takes a frozenset \(each a string\), not"),
        ("store_states{dtype='f64'}", "option dtype takes one of 'bf16', '8bit', not 'f64'"),
        ("integer_arithmetic{rounding='up'}", "rounding takes one of 'fixed', 'float', not 'up'"),
        (
            "differentiate{trained={'w': 'all'}, optimizer=Sgd()}",
            r"takes a dict \(each key a string, each value",
        ),
        (
            "differentiate{trained={}, optimizer=1}",
            "option optimizer takes a call of .*Sgd.*, not 1",
        ),
        ("differentiate{trained={}, optimizer=Sgd(speed=1)}", "unexpected keyword"),
        ("infer only", "is no pass; write NAME"),
    ],
)
def test_invalid_text_is_refused(text: str, fault: str) -> None:
    with pytest.raises(CompileError, match=fault):
        parse_pass(text, TARGETS.__getitem__)


def test_error_names_an_op_the_target_lacks() -> None:
    graph = parse_graph("graph g {\n input %x: f32[2]\n %y: f32[2] = digamma %x\n output y = %y\n}")
    with pytest.raises(
        CompileError, match=r"%y = digamma %x: target small has no digamma.*it has add, div"
    ):
        Legalize(TARGETS["small"]).run(graph)


def main() -> None:
    """Write the resulting graphs into the named files."""
    for name in sys.argv[1:]:
        path = Path(name)
        head, mark, tail = path.read_text().partition("--- expect ")
        line = tail.partition("\n")[0]
        path.write_text(f"{head}{mark}{line}\n{print_graph(transformed(path))}")


if __name__ == "__main__":
    main()
