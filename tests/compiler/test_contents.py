"""Params outside memory: nothing reads them until an artifact is written."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors import SafetensorError
from safetensors.numpy import load_file, save, save_file

from pockengine.backends.artifact import load_artifact, write_artifact
from pockengine.backends.c.backend import CBackend
from pockengine.backends.native.program import generate
from pockengine.backends.weights import write_weights
from pockengine.compiler.compile import compile_entries, compile_program
from pockengine.compiler.ir import Builder, Graph
from pockengine.compiler.ir.attach import attach
from pockengine.compiler.ir.clone import clone
from pockengine.compiler.ir.contents import Filled, InMemory, Lazy, ShapeOnly, mapped, same_contents
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ir.graph import ParamKind, Space
from pockengine.compiler.ir.scalars import DType, to_bf16
from pockengine.compiler.ir.text import parse_graph, print_graph
from pockengine.compiler.ir.types import f32
from pockengine.compiler.optim import Adam
from pockengine.compiler.options import Training
from pockengine.compiler.target import ALIGNMENT
from pockengine.devices import load_device
from pockengine.errors import CompileError, GraphError
from pockengine.tests.compiler.compile_llama import DEVICE, compile_llama
from pockengine.tests.compiler.small_nets import residual_net
from pockengine.tests.compiler.transformers import llama_net

LORA = Training("lora-4", Adam())


def lazy(graph: Graph) -> list[str]:
    """Move the weights out of memory; return a list that records the name of each read."""
    read: list[str] = []

    def watched(name: str, data: np.ndarray) -> Lazy:
        def load() -> np.ndarray:
            read.append(name)
            return data

        return Lazy(InMemory(data).type, load, name)

    for name, param in graph.params.items():
        param.contents = watched(name, param.data)
    return read


def test_frozen_weights_are_read_only_for_the_artifact(tmp_path: Path) -> None:
    backend = CBackend(load_device("rpi4"))
    program = compile_program(llama_net(), LORA, target=backend.target())
    write_artifact(program, backend, tmp_path / "held", build_code=False)
    graph = llama_net()
    read = lazy(graph)
    program = compile_program(graph, LORA, target=backend.target())
    texts = generate(program, backend)
    assert all(name not in program.scheme for name in graph.params if "self_attn" in name)
    assert set(read) <= set(program.scheme)
    write_artifact(program, backend, tmp_path / "lazy", build_code=False)
    assert set(read) >= set(graph.params)
    for name in texts:
        assert (tmp_path / "held" / "code" / name).read_text() == texts[name]
    loaded, later = (load_artifact(tmp_path / name) for name in ("held", "lazy"))
    assert loaded.weights.read_bytes() == later.weights.read_bytes()
    assert loaded.files == later.files


def test_folding_reads_only_folded_params() -> None:
    def net() -> Graph:
        g = Builder(Graph("g"))
        w = g.param("w", np.full((3, 2), 1.5, np.float32), trainable=False)
        scale = g.param("scale", np.array([2.0, 4.0], np.float32), trainable=False)
        other = g.param("other", np.ones((2, 2), np.float32), trainable=False)
        y = g.mul(g.matmul(g.input("x", f32(4, 3)), w), scale)
        g.output("y", g.matmul(y, other))
        return g.graph

    graph = net()
    read = lazy(graph)
    program = compile_entries("g", {"predict": graph})
    assert sorted(read) == ["scale", "w"]
    (folded,) = program.constants.values()
    np.testing.assert_array_equal(folded, [[3.0, 6.0]] * 3)


def test_mapped_files_have_the_saved_contents(tmp_path: Path) -> None:
    arrays = {
        "w": np.arange(6, dtype=np.float32).reshape(2, 3),
        "i": np.arange(3),
        "s": np.array(2),
    }
    save_file(arrays, tmp_path / "weights")
    found = mapped(tmp_path / "weights")
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found[name].type == InMemory(array).type
        np.testing.assert_array_equal(found[name].read(), array)


@pytest.mark.parametrize(
    ("kind", "shape", "size"),
    [
        ("F32", "0", 0),
        ("F32", "2,0,3", 0),
        ("F64", "1", 8),
        ("U16", "2", 4),
        ("C64", "1", 8),
        ("F4", "4", 2),
        ("F8_E4M3FNUZ", "3", 3),
    ],
)
def test_unsupported_tensors_are_refused_when_they_are_used(
    tmp_path: Path, kind: str, shape: str, size: int
) -> None:
    odd = f'"odd":{{"dtype":"{kind}","shape":[{shape}],"data_offsets":[8,{8 + size}]}}'
    header = f"{{{row('w', 0, 8)},{odd}}}".encode()
    data = np.ones(2, np.float32).tobytes() + bytes(size)
    (tmp_path / "weights").write_bytes(len(header).to_bytes(8, "little") + header + data)
    found = mapped(tmp_path / "weights")
    assert found["w"].read().tolist() == [1, 1]
    assert not found["odd"].known
    shown = rf"odd of .*weights is {kind}\[.*\], which is not supported"
    with pytest.raises(GraphError, match=shown):
        found["odd"].read()
    with pytest.raises(GraphError, match=shown):
        attach(residual_net(), {"fc.weight": found["odd"]})


@pytest.mark.parametrize("damage", ["short", "shape", "dtype", "no file", "no header"])
def test_damaged_files_are_refused(tmp_path: Path, damage: str) -> None:
    path, whole = tmp_path / "weights", save({"w": np.ones((2, 3), np.float32)})
    swaps = {"shape": (b"[2,3]", b"[9,3]"), "dtype": (b"F32", b"F64"), "no header": (b"{", b"[")}
    damaged = whole[:-4] if damage == "short" else whole
    if damage in swaps:
        damaged = whole.replace(*swaps[damage])
    if damage != "no file":
        path.write_bytes(damaged)
    with pytest.raises(GraphError, match="cannot be read as safetensors"):
        mapped(path)


def row(name: str, first: int, last: int) -> str:
    size = (last - first) // 4
    return f'"{name}":{{"dtype":"F32","shape":[{size}],"data_offsets":[{first},{last}]}}'


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ((row("a", 0, 8), row("a", 8, 16)), "a is given twice"),
        ((row("a", 0, 12), row("b", 4, 16)), "overlap or leave a gap at byte 4"),
        ((row("a", 0, 16), row("b", 0, 16)), "overlap or leave a gap at byte 0"),
        ((row("a", 0, 4), row("b", 8, 16)), "overlap or leave a gap at byte 8"),
        ((row("a", 0, 12),), "4 bytes belong to no tensor"),
        (
            ('"__metadata__":{}', '"__metadata__":{}', row("a", 0, 16)),
            "__metadata__ is given twice",
        ),
        (('"a":{"dtype":"F32","dtype":"I32"}',), "dtype is given twice"),
    ],
)
def test_duplicate_names_and_overlapping_offsets_are_refused(
    tmp_path: Path, rows: tuple[str, ...], words: str
) -> None:
    """As in safetensors' own library: otherwise two readers might see different models."""
    header = f"{{{','.join(rows)}}}".encode()
    header += b" " * (-len(header) % 8)
    path = tmp_path / "weights"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(16))
    with pytest.raises(SafetensorError):
        load_file(path)
    with pytest.raises(GraphError, match=f"cannot be read as safetensors: .*{words}"):
        mapped(path)


def test_weights_are_written_in_order_as_safetensors_reads_them(tmp_path: Path) -> None:
    names = ["b", "a.ü", 'quoted "x"', "tab\t", "B", "z", "\x7f"]
    types = [dtype for dtype in DType if dtype is not DType.BF16]
    arrays = {
        name: np.ones((index, 2) if index else (), dtype.numpy)
        for index, (name, dtype) in enumerate(zip(names, types, strict=True))
    }
    arrays |= {f"more.{key}": np.full(3, 2.5, np.float32) for key in "qwerty"}
    path = tmp_path / "weights"
    write_weights({name: InMemory(array) for name, array in arrays.items()}, path)
    again = load_file(path)
    assert {name: (a.dtype, a.tolist()) for name, a in again.items()} == {
        name: (a.dtype, a.tolist()) for name, a in arrays.items()
    }
    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    assert begin % ALIGNMENT == 0
    assert data[begin:] == b"".join(array.tobytes() for array in arrays.values())


def test_bf16_weights_round_trip(tmp_path: Path) -> None:
    data = to_bf16(np.linspace(-3, 3, 7))
    write_weights({"w": InMemory(data)}, tmp_path / "weights")
    again = mapped(tmp_path / "weights")["w"]
    assert again.type.dtype is DType.BF16
    assert again.read().tobytes() == data.tobytes()


def test_shapes_suffice_for_code_but_not_for_an_artifact(tmp_path: Path) -> None:
    program, files = compile_llama(layers=2)
    weights = sum(param.value.type.nbytes for param in program.params.values())
    assert weights > 2 * 2**30
    assert "program.c" in files
    with pytest.raises(CompileError, match=r"params have a shape and no numbers, .*among them"):
        write_artifact(program, CBackend(load_device(DEVICE)), tmp_path / "a", build_code=False)
    with pytest.raises(GraphError, match="has a shape and no numbers"):
        run(program.entries["evaluate"].graph, {})


def test_contents_are_compared_without_reading_if_possible() -> None:
    def fail() -> np.ndarray:
        raise AssertionError("it was read")

    lazy_one = Lazy(f32(2), fail, "w")
    assert same_contents(lazy_one, lazy_one)
    assert not same_contents(lazy_one, InMemory(np.ones(3, np.float32)))
    assert same_contents(Filled(f32(2), 1.0), InMemory(np.ones(2, np.float32)))
    assert not same_contents(ShapeOnly(f32(2)), InMemory(np.ones(2, np.float32)))
    nan = np.full(2, np.nan, np.float32)
    assert same_contents(InMemory(nan), InMemory(nan.copy()))


def test_changed_sources_are_refused() -> None:
    with pytest.raises(GraphError, match=r"w holds f32\[3\], not f32\[2\]"):
        Lazy(f32(2), lambda: np.zeros(3, np.float32), "w").read()


def test_entries_share_unread_params() -> None:
    graph = llama_net()
    read = lazy(graph)
    compile_entries("two", {"a": graph, "b": clone(graph)})
    assert not read


def test_params_have_a_kind_and_a_space() -> None:
    program = compile_program(residual_net(), Training("head-only", Adam()))
    params = program.params
    assert params["fc.weight"].kind is ParamKind.WEIGHT
    assert params["fc.weight"].space is Space.MUTABLE
    assert params["a.0.weight"].kind is ParamKind.WEIGHT
    assert params["a.0.weight"].space is Space.CONSTANT
    assert params["a.1.running_mean"].kind is ParamKind.BUFFER
    assert params["a.1.running_mean"].space is Space.MUTABLE
    states = {param.name for param in params.values() if param.kind is ParamKind.OPTIMIZER}
    assert states == {name for name in params if name.startswith("optimizer.")}
    text = print_graph(program.entries["train"].graph)
    assert "frozen %a.0.weight: f32[3,3,4,8] kind=weight space=constant" in text
    again = parse_graph(text)
    assert print_graph(again) == text


def test_optimizer_state_is_not_guessed_from_names(tmp_path: Path) -> None:
    g = Builder(Graph("g"))
    scale = g.param("optimizer.scale", np.ones(3, np.float32), trainable=False)
    y = g.mul(g.param("w", np.ones(3, np.float32)), scale)
    g.emit("ema_update", scale, g.input("x", f32(3)), momentum=0.5)
    g.output("loss", g.reduce_sum(y, axes=(0,)))
    backend = CBackend(load_device("rpi4"))
    program = compile_program(g.graph, Training(), target=backend.target())
    write_artifact(program, backend, tmp_path / "a", build_code=False)
    rows = json.loads((tmp_path / "a" / "manifest.json").read_text())["params"]
    kinds = {row["name"]: row["kind"] for row in rows}
    assert (kinds["optimizer.scale"], kinds["w"]) == ("param", "param")


def test_attached_files_have_the_framework_layout(tmp_path: Path) -> None:
    g = Builder(Graph("g"))
    w = g.param("w", ShapeOnly(f32(3, 2)), permutation=(1, 0))
    g.param("b", ShapeOnly(f32(2)))
    g.output("y", g.matmul(g.input("x", f32(1, 3)), w))
    theirs = np.arange(6, dtype=np.float32).reshape(2, 3)
    write_weights({"w": InMemory(to_bf16(theirs))}, tmp_path / "weights")
    attach(g.graph, mapped(tmp_path / "weights"))
    np.testing.assert_array_equal(g.graph.params["w"].data, theirs.T)
    assert not g.graph.params["b"].contents.known
    x = np.array([[1, 10, 100]], np.float32)
    np.testing.assert_array_equal(run(g.graph, {"x": x})["y"], x @ theirs.T)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("other", np.ones(2, np.float32), "no param 'other', which the file holds"),
        ("w", np.ones((3, 2), np.float32), r"which is not f32\[3,2\] in the order"),
        ("w", np.ones((2, 3), np.int32), r"w: the file holds i32\[2,3\]"),
    ],
)
def test_mismatched_tensors_are_refused(name: str, array: np.ndarray, message: str) -> None:
    g = Builder(Graph("g"))
    g.param("w", ShapeOnly(f32(3, 2)), permutation=(1, 0))
    with pytest.raises(GraphError, match=message):
        attach(g.graph, {name: InMemory(array)})
