"""A tiny net after each group of passes, for ARCHITECTURE.md.

`python -m pockengine.tests.repo.tiny_net` writes it between the document's two marks.
"""

import difflib
from pathlib import Path

import numpy as np

from pockengine.compiler.compile import compile_program, passes_of
from pockengine.compiler.ir import F32, Builder, Graph, TensorType
from pockengine.compiler.ir.text import print_graph
from pockengine.compiler.options import Training
from pockengine.compiler.passes.pass_text import print_passes
from pockengine.compiler.program import Entry
from pockengine.compiler.sparse import Scheme
from pockengine.compiler.sparse.choice import FULL
from pockengine.compiler.target import FusionRules, Target

DOCUMENT = Path(__file__).parents[2] / "ARCHITECTURE.md"
BEGIN, END = "<!-- tiny_net: begin -->\n", "<!-- tiny_net: end -->"

TARGET = Target(
    FusionRules(
        epilogue=frozenset({"matmul"}),
        prologue={"reduce_mean": (0,)},
        update=frozenset({"matmul"}),
    ),
    name="tiny",
)
TRAINING = Training(Scheme("first", (("w", FULL),)))
SHOWN = {
    "train.differentiate": "`differentiate` appended the gradient of `w` and its update. "
    "Nothing reads the gradient of `v`, so it was never built:",
    "train.dead_code_2": "After simplification, folding and dead code elimination:",
    "train.fuse": "`fuse` grouped nodes into kernels, each with a small graph as its body:",
}
"""Passes after which the graph is shown, with the preceding text."""


def tiny_net() -> Graph:
    """Two products with an activation between them; the second is frozen."""
    g = Builder(Graph("tiny"))
    x = g.input("x", TensorType(F32, (2, 3)))
    expected = g.input("wanted", TensorType(F32, (2, 2)))
    w = g.param("w", np.ones((3, 4), np.float32))
    v = g.param("v", np.ones((4, 2), np.float32))
    y = g.matmul(g.relu(g.matmul(x, w)), v)
    g.output("loss", g.reduce_mean(g.square(g.sub(y, expected)), axes=(0, 1)))
    return g.graph


def through_passes() -> str:
    """Return the passes of `train`, and the graph after some of them, as Markdown."""
    graphs: dict[str, str] = {}
    net = tiny_net()
    program = compile_program(
        net,
        TRAINING,
        target=TARGET,
        observe=lambda name, graph: graphs.update({name: print_graph(graph)}),
    )
    passes = print_passes(passes_of(net, TRAINING, target=TARGET)["train"])
    parts = ["The forward graph. Of its two weights, `w` trains:\n" + _block(print_graph(net))]
    parts.append("Passes of entry `train`:\n" + _block(passes))
    last = _difference(graphs["train.fuse"], graphs["train.absorb_updates"])
    parts += [f"{words}\n{_block(graphs[name])}" for name, words in SHOWN.items()]
    parts.append(
        "`schedule` and `absorb_updates` merged the update into the product that computes its "
        f"gradient, which never exists in memory:\n{_block(last)}"
    )
    plan = _plan(program.entries["train"])
    parts.append(f"The memory plan, in bytes of the arena:\n{_block(plan)}")
    return "\n".join(parts)


def _difference(before: str, after: str) -> str:
    """Return the differing lines, prefixed by - and +."""
    lines = difflib.ndiff(before.splitlines(keepends=True), after.splitlines(keepends=True))
    return "".join(line for line in lines if line[0] in "-+")


def _plan(entry: Entry) -> str:
    places = [
        f"%{value.name} {value.type} at {place.offset}, {place.size} bytes\n"
        for value, place in entry.plan.values.items()
    ]
    return "".join(sorted(places)) + f"arena {entry.plan.size} bytes\n"


def _block(text: str) -> str:
    return f"```\n{text}```\n"


def split(document: str) -> tuple[str, str, str]:
    """Return the document's text before, between and after the marks."""
    head, _, rest = document.partition(BEGIN)
    inside, _, tail = rest.partition(END)
    return head, inside, tail


def main() -> None:
    """Write the dumps into the document."""
    head, _, tail = split(DOCUMENT.read_text(encoding="utf-8"))
    DOCUMENT.write_text(f"{head}{BEGIN}{through_passes()}{END}{tail}", encoding="utf-8")


if __name__ == "__main__":
    main()
