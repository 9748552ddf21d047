"""Names come from the user's model: whatever they are, they stay names in generated C."""

from pathlib import Path

import numpy as np

from pockengine.backends.c.artifact import write_artifact
from pockengine.backends.c.backend import CBackend
from pockengine.backends.c.program import comment, generate
from pockengine.backends.c.session import Session
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import F32, Builder, Graph, TensorType
from pockengine.devices import load_device

HOSTILE = 'w*/ } int main(void) { return 7; } /*\n#error "\\'


def hostile_graph() -> Graph:
    g = Builder(Graph(f"net {HOSTILE}"))
    x = g.input(f"x {HOSTILE}", TensorType(F32, (2, 3)))
    with g.scope(f"layer {HOSTILE}"):
        y = g.mul(x, g.param(f"weight {HOSTILE}", np.ones(3, np.float32)))
    g.output("loss", g.reduce_mean(g.square(y), axes=(0, 1)))
    g.output(f"y {HOSTILE}", y)
    return g.graph


def test_comments_cannot_be_left() -> None:
    text = comment(HOSTILE)
    assert text.index("*/") == len(text) - 2
    assert "\n" not in text
    assert "\\" not in text


def test_a_program_of_hostile_names_builds_and_trains(tmp_path: Path) -> None:
    backend = CBackend(load_device("host"))
    program = compile_program(hostile_graph(), target=backend.target())
    lines = generate(program, backend)["program.c"].splitlines()
    assert not any(line.startswith("#error") for line in lines)
    x = np.full((2, 3), 2, np.float32)
    with Session(write_artifact(program, backend, tmp_path / "net")) as session:
        losses = [float(session.train_step({f"x {HOSTILE}": x}, lr=0.1)["loss"]) for _ in range(2)]
        assert f"weight {HOSTILE}" in session.params()
    assert losses[0] == 4.0
    assert losses[1] < losses[0]
