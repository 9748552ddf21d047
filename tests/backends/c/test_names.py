"""Names come from the user's model: in generated C they stay names, whatever they are."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pockengine.backends.artifact import write_artifact
from pockengine.backends.c.backend import CBackend
from pockengine.backends.native.program import c_string, comment, generate
from pockengine.backends.registry import open_session
from pockengine.compiler.compile import compile_entries, compile_program
from pockengine.compiler.ir import F32, Builder, Graph, TensorType
from pockengine.compiler.optim import Adam
from pockengine.compiler.options import Training
from pockengine.compiler.sparse import Scheme
from pockengine.compiler.sparse.choice import parse_choice
from pockengine.devices import load_device
from pockengine.errors import CompileError
from pockengine.tests.backends.c.harness import device_of
from pockengine.tests.backends.c.tokens import ATTACKS, check_names, program_tokens, tokens

Name = Callable[[str], str]


def plain(name: str) -> str:
    return name


def net(name: Name = plain) -> Graph:
    """A graph with every kind of name: its own, inputs, params, constants, scopes, outputs."""
    g = Builder(Graph(name("net")))
    x = g.input(name("x"), TensorType(F32, (2, 3)))
    with g.scope(name("layer")):
        frozen = g.param(name("frozen"), np.ones(3, np.float32), trainable=False)
        y = g.mul(x, g.add(g.param(name("weight"), np.ones(3, np.float32)), frozen))
        y = g.matmul(y, g.constant(np.ones((3, 4), np.float32), name("table")))
        g.graph.nodes[-1].result.name = name("product")
    g.output("loss", g.reduce_mean(g.square(y), axes=(0, 1)))
    g.output(name("y"), y)
    return g.graph


@pytest.mark.parametrize("attack", ATTACKS, ids=range(len(ATTACKS)))
def test_a_name_changes_no_token(attack: str) -> None:
    check_names(net, [attack])


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_is_one_comment_and_one_string(text: str) -> None:
    assert tokens(f"a {comment(text)} b {c_string(text)} c") == ['a\0b\0""\0c']


@settings(max_examples=200, deadline=None)
@given(st.text("*/\\?\"'\n%# a", min_size=1))
def test_any_text_of_c_is_one_comment_and_one_string(text: str) -> None:
    assert tokens(f"a {comment(text)} b {c_string(text)} c") == ['a\0b\0""\0c']


def test_the_tokens_see_what_a_compiler_sees() -> None:
    assert tokens("/* a ??/\n*/ b") == ["b"]
    assert tokens("/* *\\\n/ int x;") == ["int\0x\0;"]
    assert tokens('"\\"" x') == ['""\0x']
    assert tokens("x\n#if 1") == ["x", "\n#\0if\x001"]


@pytest.mark.parametrize("attack", ATTACKS[:8], ids=range(8))
def test_names_of_a_scheme_and_an_optimizer_change_no_token(attack: str) -> None:
    def training(name: str) -> Training:
        rules = ((name.replace("[", "[[]").replace("*", "[*]").replace("?", "[?]"), "full"),)
        choices = tuple((pattern, parse_choice(kind, "")) for pattern, kind in rules)
        return Training(Scheme(name, choices), Adam())

    hostile = program_tokens(net(lambda name: name + attack), training(f"weight{attack}"))
    assert hostile == program_tokens(net(), training("weight"))


def test_entries_whose_names_look_alike_are_two_functions(tmp_path: Path) -> None:
    backend = CBackend(load_device("host"))
    graphs = {name: scaled(factor) for name, factor in (("a b", 2), ("a_b", 3), ("*/", 5))}
    program = compile_entries("net", graphs, target=backend.target())
    x = np.ones(3, np.float32)
    with open_session(write_artifact(program, backend, tmp_path / "net")) as session:
        for name, factor in (("a b", 2), ("a_b", 3), ("*/", 5)):
            assert session.run(name, {"x": x})["y"][0] == factor


def scaled(factor: float) -> Graph:
    g = Builder(Graph("net"))
    g.output("y", g.mul(g.input("x", TensorType(F32, (3,))), g.scalar(factor)))
    return g.graph


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a\0b", "holds a NUL"),
        ("n" * 512, "has 512 bytes"),
        ("é" * 256, "has 512 bytes"),
        ("\udc80", "is not Unicode"),
        ("__metadata__", "safetensors' own"),
    ],
)
@pytest.mark.parametrize("place", ["x", "weight", "y"])
def test_names_that_cannot_be_held_are_refused(name: str, words: str, place: str) -> None:
    backend = CBackend(device_of("avx2"))
    graph = net(lambda plain: name if plain == place else plain)
    program = compile_program(graph, target=backend.target())
    with pytest.raises(CompileError, match=words):
        generate(program, backend)


@pytest.mark.parametrize(
    "name", ["", "n" * 507, "".join(ATTACKS[:6]), '\n\t\x01\x7f"\\', "é" * 253]
)
def test_a_program_of_odd_names_builds_and_trains(tmp_path: Path, name: str) -> None:
    backend = CBackend(load_device("host"))
    graph = net(lambda plain: f"{name}" if plain == "weight" else f"{name}{plain[:4]}")
    program = compile_program(graph, target=backend.target())
    x = np.full((2, 3), 2, np.float32)
    with open_session(write_artifact(program, backend, tmp_path / "net")) as session:
        losses = [float(session.train_step({f"{name}x": x}, lr=0.001)["loss"]) for _ in range(2)]
        assert name in session.params()
        session.save(tmp_path / "saved")
        session.load(tmp_path / "saved")
    assert losses[1] < losses[0]
