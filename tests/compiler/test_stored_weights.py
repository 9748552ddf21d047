"""Frozen weights in fewer bits: storage, computation, refused requests."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import F32, I64, Builder, Graph, TensorType
from pockengine.compiler.ir.blocks import BLOCK, Blocks
from pockengine.compiler.ir.contents import ShapeOnly
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ir.scalars import numbers_of
from pockengine.compiler.ir.text import parse_graph, print_graph
from pockengine.compiler.optim import Sgd
from pockengine.compiler.options import Training
from pockengine.compiler.program import Program
from pockengine.compiler.sparse.lora import lora
from pockengine.compiler.storage import Storage
from pockengine.errors import CompileError, GraphError

Arrays = dict[str, np.ndarray]
SCHEME = lora(4, 8, ["first", "second"])
BATCH: Arrays = {
    "ids": np.arange(12).reshape(2, 6) * 7,
    "target": np.arange(12),
    "lr": np.float32(0.1),
}


def decoder(numbers: Arrays | None = None) -> Graph:
    """Build a table of 96 rows, both embedding and last layer, and a large and a small layer."""
    rng = np.random.default_rng(0)
    g = Builder(Graph("decoder"))
    ids = g.input("ids", TensorType(I64, (2, 6)))

    def weight(name: str, *shape: int) -> object:
        drawn = (rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)
        return g.param(name, drawn if numbers is None else numbers[name])

    table = weight("table", 96, 64)
    x = g.relu(g.matmul(g.take(table, ids, axis=0), weight("first", 64, 128)))
    x = g.matmul(x, weight("second", 64, 128), transpose_b=True)
    x = g.matmul(g.reshape(x, shape=(12, 64)), weight("small", 64, 60))
    logits = g.matmul(g.matmul(x, weight("thin", 60, 64)), table, transpose_b=True)
    g.output("loss", g.cross_entropy(logits, g.input("target", TensorType(I64, (12,)))))
    return g.graph


def trained(program: Program, steps: int = 4) -> tuple[list[float], Arrays]:
    values = {name: param.data.copy() for name, param in program.params.items()}
    train = program.entries["train"].graph
    return [float(run(train, BATCH, values)["loss"]) for _ in range(steps)], values


@given(
    bits=st.sampled_from([4, 8]),
    seed=st.integers(0, 1000),
    before=st.integers(1, 3),
    count=st.integers(1, 3),
    behind=st.integers(1, 4),
)
@settings(max_examples=60, deadline=None)
def test_block_errors_are_bounded_by_the_scale(
    bits: int, seed: int, before: int, count: int, behind: int
) -> None:
    rng = np.random.default_rng(seed)
    shape = (before, count * BLOCK, behind)
    numbers = (rng.standard_normal(shape) * np.exp2(rng.integers(-6, 6, shape))).astype(np.float32)
    numbers[rng.random(shape) < 0.2] = 0
    blocks = Blocks(bits, 1)
    codes, scales = blocks.encode(numbers)
    assert (codes.nbytes, scales.nbytes) == (numbers.size * bits // 8, numbers.size // BLOCK * 2)
    errors = np.abs(blocks.decode(codes, scales) - numbers)
    grouped = errors.reshape(before, count, BLOCK, behind).max(axis=2)
    step = np.abs(scales.astype(np.float32))
    # 4 bits have no +8, so a number as large as the extreme but of opposite sign loses a step.
    # Scales are rounded to f16's 11 bits, and so is the value of the largest code.
    limit = (1.0 if bits == 4 else 0.5) * step + (8 if bits == 4 else 127) * step * 2.0**-10
    assert (grouped <= limit).all()


def test_blocks_match_ggml() -> None:
    numbers = np.zeros(32, np.float32)
    numbers[[0, 1, 16, 31]] = [8.0, -3.0, 1.0, -4.0]
    codes, scales = Blocks(4, 0).encode(numbers)
    assert scales.tolist() == [-1.0]  # the extreme has code 0, which is -8
    assert codes.tolist() == [0 | (7 << 4), 11 | (8 << 4), *[0x88] * 13, 8 | (12 << 4)]
    assert Blocks(4, 0).decode(codes, scales).tolist() == numbers.tolist()
    codes, scales = Blocks(8, 0).encode(numbers * np.float32(127 / 8))
    assert (scales.tolist(), codes[[0, 1, 16, 31]].tolist()) == ([1.0], [127, -48, 16, -64])


def test_unsupported_block_contents_are_refused() -> None:
    with pytest.raises(GraphError, match=r"axis 0 of \[33\] does not hold blocks of 32"):
        Blocks(8, 0).encode(np.zeros(33, np.float32))
    for number in (np.inf, np.nan, 1e30):
        with pytest.raises(GraphError, match="not finite, or too large"):
            Blocks(4, 0).encode(np.full(32, number, np.float32))


@pytest.mark.parametrize(
    ("storage", "dora"),
    [
        ("bf16", False),
        ("f16", False),
        ("int8", False),
        ("int4", False),
        ("bf16", True),
        ("int4", True),
    ],
)
def test_training_matches_the_decoded_weights(storage: str, dora: bool) -> None:
    scheme = lora(4, 8, ["first", "second"], dora=dora)
    program = compile_program(
        decoder(), Training(scheme, Sgd(), storage=Storage(storage)), check=True
    )
    params = program.params
    dtypes = {"bf16": "bf16", "f16": "f16", "int8": "i8", "int4": "u8"}
    for name in ("table", "first", "second"):
        assert params[name].value.dtype.value == dtypes[storage]
    assert params["small"].value.dtype is F32  # below the minimum size
    exact: Arrays = {}
    for name in ("table", "first", "second", "small", "thin"):
        stored = params[name]
        scales = params.get(f"{name}.scales")
        exact[name] = (
            numbers_of(stored.data).astype(np.float32)
            if stored.blocks is None or scales is None
            else stored.blocks.decode(stored.data, scales.data)
        )
    losses, values = trained(program)
    plain = compile_program(decoder(exact), Training(scheme, Sgd()))
    expected, ends = trained(plain)
    assert losses == expected
    for name in (name for adapter in plain.adapters for name in adapter.params):
        assert values[name].tolist() == ends[name].tolist()
    assert losses[-1] < losses[0]


def test_each_reader_decodes_separately() -> None:
    program = compile_program(decoder(), Training(SCHEME, Sgd(), storage=Storage("int4")))
    for entry in program.entries.values():
        users = entry.graph.users()
        nodes = entry.graph.nodes
        params = [n for n in nodes if n.op == "decode_blocks" and n.operands[0].node is None]
        assert len(params) >= 3
        for node in params:
            (reader,) = users[node.result]
            assert nodes.index(reader) == nodes.index(node) + 1


def test_trained_weights_stay_f32_and_blocks_lie_along_the_sum() -> None:
    program = compile_program(
        decoder(), Training(preset_of("second"), Sgd(), storage=Storage("int8"))
    )
    assert program.params["second"].value.dtype is F32
    stored = {name: param.blocks for name, param in program.params.items() if param.blocks}
    assert stored == {"table": Blocks(8, 1), "first": Blocks(8, 0)}


def preset_of(*names: str) -> object:
    return lora(1, 1, ["thin"], names)


def test_shapes_without_contents_are_stored_small() -> None:
    graph = decoder()
    for param in graph.params.values():
        param.contents = ShapeOnly(param.value.type)
    program = compile_program(graph, Training(SCHEME, Sgd(), storage=Storage("int4")))
    assert sum(param.value.type.nbytes for param in program.params.values()) < 60_000
    assert not program.params["table"].contents.known


def test_text_form_has_blocks() -> None:
    program = compile_program(decoder(), Training(SCHEME, Sgd(), storage=Storage("int4")))
    graph = program.entries["train"].graph
    text = print_graph(graph)
    assert "frozen %table: u8[96,32] blocks=4@1" in text
    again = parse_graph(text)
    assert again.params["first"].blocks == Blocks(4, 0)
    assert print_graph(again) == text


def test_errors_name_the_invalid_input(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="stored as f32, bf16, f16, int8, int4, not 'int2'"):
        Training(storage=Storage("int2"))
    with pytest.raises(CompileError, match="stored as int8: no weight"):
        compile_program(decoder(), Training("full", Sgd(), storage=Storage("int8")))
    numbers = {name: param.data.copy() for name, param in decoder().params.items()}
    for storage, number in (("int4", np.nan), ("f16", 65520), ("bf16", np.inf)):
        numbers["first"][3, 5] = number
        training = Training(SCHEME, Sgd(), storage=Storage(storage))
        program = compile_program(decoder(numbers), training)
        with pytest.raises(CompileError, match="first cannot be stored small: a weight is not fin"):
            _ = program.params["first"].data
    numbers["first"][3, 5] = 65519  # rounds to 65504
    program = compile_program(decoder(numbers), Training(SCHEME, Sgd(), storage=Storage("f16")))
    assert program.params["first"].data.max() == 65504
