"""Unsupported models, damaged files and hostile files: a clear error in bounded time."""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper

from pockengine.errors import ImportModelError, InternalError
from pockengine.frontends.emit import division
from pockengine.frontends.onnx.model import from_onnx
from pockengine.tests.frontends.onnx.models import cnn, make, mlp, one, random

SECONDS = 30.0
"""Time limit of a refusal; each takes a fraction of a second on an idle machine."""


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    started = time.monotonic()
    yield
    assert time.monotonic() - started < SECONDS


def external(model: ModelProto, location: str, **entries: str) -> ModelProto:
    """Mark the data of the first initializer as external."""
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=value)
    return model


def saved(model: ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_everything_unsupported_is_listed_at_once() -> None:
    nodes = [
        helper.make_node("Multinomial", ["x"], ["a"], name="block/draw"),
        helper.make_node("Relu", ["a"], ["b"], name="after"),
        helper.make_node("Multinomial", ["b"], ["c"], name="block/draw_2"),
        helper.make_node("Frobnicate", ["c"], ["d"], name="mine", domain="com.example"),
        helper.make_node("Pad", ["x", "pads"], ["y"], name="pad", mode="reflect"),
    ]
    weights = {"pads": -np.ones(6, np.int64)}
    model = make(nodes, {"x": (3, 3, 3)}, {"y": (1, 1, 1)}, weights)
    model.opset_import.append(helper.make_opsetid("com.example", 1))

    with pytest.raises(ImportModelError) as caught:
        from_onnx(model)

    message = str(caught.value)
    assert "small cannot be imported: 4 unsupported operations" in message
    assert "2 x Multinomial in block/draw, block/draw_2: there is no rule for it" in message
    assert "com.example.Frobnicate in mine" in message
    assert "Pad in pad: padding in mode 'reflect' that cuts" in message
    assert "Relu" not in message


def test_unknown_attribute_is_named() -> None:
    with pytest.raises(ImportModelError, match=r"consumed_inputs for operator Relu"):
        from_onnx(one("Relu", {"x": (2,)}, (2,), consumed_inputs=[1]))


def test_open_shapes_must_be_specified() -> None:
    with pytest.raises(ImportModelError, match=r"a tensor in x: .* give an example of this input"):
        from_onnx(cnn())
    with pytest.raises(ImportModelError, match=r"\[2, 4, 8, 8\] does not fit .*\[None, 3, 8, 8\]"):
        from_onnx(cnn(), shapes={"x": (2, 4, 8, 8)})
    with pytest.raises(ImportModelError, match="no input 'picture'; it has x"):
        from_onnx(cnn(), shapes={"picture": (2, 3, 8, 8)})


@pytest.mark.parametrize(
    ("kind", "name"), [(TensorProto.COMPLEX64, "COMPLEX64"), (TensorProto.STRING, "STRING")]
)
def test_other_element_types_are_named(kind: int, name: str) -> None:
    model = one("Identity", {"x": (2,)}, (2,))
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = kind

    with pytest.raises(ImportModelError, match=rf"a tensor in x: elements of type {name}"):
        from_onnx(model)


def test_control_flow_is_named() -> None:
    body = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["r"])],
        "then",
        [],
        [helper.make_tensor_value_info("r", TensorProto.FLOAT, (2,))],
    )
    node = helper.make_node("If", ["c"], ["y"], name="choice", then_branch=body, else_branch=body)
    model = make([node], {"x": (2,)}, {"y": (2,)})
    model.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, ()))

    with pytest.raises(ImportModelError, match="If in choice"):
        from_onnx(model)


@pytest.mark.parametrize(
    ("op", "attrs", "opset"),
    [
        ("Concat", {"axis": 2}, 17),
        ("Flatten", {"axis": 4}, 17),
        ("ReduceSum", {"axes": [3]}, 11),
        ("Softmax", {"axis": -3}, 17),
        ("Squeeze", {"axes": [5]}, 11),
    ],
)
def test_axes_out_of_range_are_refused(op: str, attrs: dict[str, int], opset: int) -> None:
    with pytest.raises(ImportModelError, match=rf"{op} in y: axe?i?s .* of a tensor of 2 dim"):
        from_onnx(one(op, {"x": (2, 1)}, (2, 1), opset, **attrs))


def test_old_opsets_are_refused() -> None:
    with pytest.raises(ImportModelError, match=r"of opset 6; 7 is the oldest"):
        from_onnx(one("Relu", {"x": (2,)}, (2,), opset=6))


def test_reserved_names_are_refused() -> None:
    with pytest.raises(ImportModelError, match=r"in lr: .*rename"):
        from_onnx(one("Relu", {"lr": (2,)}, (2,)))


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ImportModelError, match=r"there is no ONNX file .*none\.onnx"):
        from_onnx(tmp_path / "none.onnx")
    with pytest.raises(ImportModelError, match="cannot be read"):
        from_onnx(tmp_path)


def test_truncated_files_are_refused(tmp_path: Path) -> None:
    whole = mlp().SerializeToString()
    for length in range(0, len(whole), len(whole) // 40):
        path = tmp_path / "model.onnx"
        path.write_bytes(whole[:length])
        with pytest.raises(ImportModelError):
            from_onnx(path)


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=8))
def test_changed_bytes_never_crash(tmp_path: Path, changes: list[tuple[int, int]]) -> None:
    data = bytearray(cnn().SerializeToString())
    for place, byte in changes:
        data[place % len(data)] = byte
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    try:
        graph = from_onnx(path, shapes={"x": (2, 3, 8, 8)})
    except ImportModelError:
        return
    assert graph.outputs


def test_cycles_are_refused() -> None:
    nodes = [
        helper.make_node("Add", ["x", "b"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
    ]
    with pytest.raises(ImportModelError, match="breaks the standard"):
        from_onnx(make(nodes, {"x": (2,)}, {"b": (2,)}))


@pytest.mark.parametrize("dims", [[2**40, 2**20], [-3, 4], [2**62, 4, 2**62]])
def test_absurd_shapes_of_weights_are_refused(dims: list[int]) -> None:
    model = mlp()
    del model.graph.initializer[0].dims[:]
    model.graph.initializer[0].dims.extend(dims)

    with pytest.raises(ImportModelError, match=r"fc1\.weight .*(absurd|negative)"):
        from_onnx(model)


def test_weights_with_too_few_bytes_are_refused() -> None:
    model = mlp()
    model.graph.initializer[0].raw_data = model.graph.initializer[0].raw_data[:-4]

    with pytest.raises(ImportModelError, match=r"fc1\.weight .* needs 128 elements and has 127"):
        from_onnx(model)


def test_absurd_inputs_are_refused() -> None:
    with pytest.raises(ImportModelError, match="absurdly large"):
        from_onnx(one("Relu", {"x": (2**31, 2**31)}, (2**31, 2**31)))


@pytest.mark.parametrize("op", ["ConstantOfShape", "Expand", "Tile", "Range"])
def test_huge_constants_are_refused(op: str) -> None:
    """A few bytes of a file must not become terabytes of constants."""
    huge = np.asarray([2**20, 2**20], np.int64)
    weights = {
        "ConstantOfShape": {"shape": huge},
        "Expand": {"one": np.ones((1, 1), np.int64), "shape": huge},
        "Tile": {"one": np.ones((1, 1), np.int64), "shape": huge},
        "Range": {
            name: np.asarray(n, np.int64) for name, n in zip("abc", (0, 2**40, 1), strict=True)
        },
    }[op]
    nodes = [
        helper.make_node(op, list(weights), ["big"], name="bomb"),
        helper.make_node("ReduceSum", ["big"], ["total"]),
        helper.make_node("Cast", ["total"], ["number"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["x", "number"], ["y"]),
    ]

    with pytest.raises(ImportModelError, match=rf"{op} in bomb: a constant of \d+ elements"):
        from_onnx(make(nodes, {"x": (2,)}, {"y": ("a", "b")}, weights))


def test_repeatedly_doubled_tensors_are_refused() -> None:
    nodes = [
        helper.make_node("Concat", [f"x{i}", f"x{i}"], [f"x{i + 1}"], axis=0) for i in range(60)
    ]
    with pytest.raises(ImportModelError, match="absurdly large"):
        from_onnx(make(nodes, {"x0": (4,)}, {"x60": ("n",)}))


@pytest.mark.parametrize(
    "location", ["/etc/passwd", "../secret.bin", "sub/../../secret.bin", "link.bin", ""]
)
def test_external_data_stay_inside_their_folder(location: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(4096))
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")

    with pytest.raises(ImportModelError, match=r"fc1\.weight .*outside of the model's folder"):
        from_onnx(saved(external(mlp(), location), folder))


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"offset": "4000"}, "needs 512 bytes"),
        ({"offset": "-8"}, "needs 512 bytes"),
        ({"length": "99999999999"}, "needs 512 bytes"),
        ({"offset": "many"}, "no number"),
    ],
)
def test_external_data_of_the_wrong_size_are_refused(
    entries: dict[str, str], message: str, tmp_path: Path
) -> None:
    (tmp_path / "weights.bin").write_bytes(bytes(4096))

    with pytest.raises(ImportModelError, match=message):
        from_onnx(saved(external(mlp(), "weights.bin", **entries), tmp_path))


def test_a_constant_reads_its_data_beside_the_model(tmp_path: Path) -> None:
    weight = random(4, 3)
    (tmp_path / "weights.bin").write_bytes(weight.tobytes())
    place = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=weight.shape)
    place.data_location = TensorProto.EXTERNAL
    place.external_data.add(key="location", value="weights.bin")
    nodes = [
        helper.make_node("Constant", [], ["w"], value=place),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]

    with pytest.warns(UserWarning, match="w are `Constant` operators"):
        graph = from_onnx(saved(make(nodes, {"x": (2, 4)}, {"y": (2, 3)}), tmp_path))

    np.testing.assert_array_equal(graph.params["w"].data, weight)


def test_missing_external_data_are_named(tmp_path: Path) -> None:
    with pytest.raises(ImportModelError, match=r"fc1\.weight are missing: there is no file"):
        from_onnx(saved(external(mlp(), "weights.bin"), tmp_path))
    with pytest.raises(ImportModelError, match="give the model's path"):
        from_onnx(external(mlp(), "weights.bin"))


def test_devices_are_refused_as_external_data(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(ImportModelError, match="there is no file"):
        from_onnx(saved(external(mlp(), "pipe"), tmp_path))


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)

    with pytest.raises(ImportModelError, match=r"from_onnx needs the package onnx.*pip install"):
        from_onnx("model.onnx")


def test_declared_outputs_must_match() -> None:
    model = one("Relu", {"x": (2,)}, (2,))
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64

    with pytest.raises(ImportModelError, match=r"output y in .*: the file declares i64, but"):
        from_onnx(model)


def with_functions(calls: dict[str, list[str]]) -> ModelProto:
    """A model that calls F0; each function calls others in sequence, or is a Relu."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    model = make([helper.make_node("F0", ["x"], ["y"], domain="mine")], {"x": (2,)}, {"y": (2,)})
    model.opset_import.append(opsets[1])
    for name, called in calls.items():
        nodes = [
            helper.make_node(other, [f"v{i}"], [f"v{i + 1}"], domain="mine")
            for i, other in enumerate(called)
        ] or [helper.make_node("Relu", ["v0"], ["v1"])]
        result = f"v{len(nodes)}"
        model.functions.append(helper.make_function("mine", name, ["v0"], [result], nodes, opsets))
    return model


def test_recursive_functions_are_refused() -> None:
    with pytest.raises(ImportModelError, match="Cycle detected"):
        from_onnx(with_functions({"F0": ["F1"], "F1": ["F0"]}))


def test_exponential_functions_are_refused() -> None:
    """Forty functions with two calls each would expand to a trillion operators."""
    calls = {f"F{i}": [f"F{i + 1}"] * 2 for i in range(40)}

    with pytest.raises(ImportModelError, match="expand to 1099511627776 operators; 1000000 is"):
        from_onnx(with_functions({**calls, "F40": []}))


def test_our_bugs_are_not_blamed_on_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(division, "remainder", None)
    model = one("Mod", {"a": (2,), "b": (2,)}, (2,), fmod=1)

    with pytest.raises(InternalError, match=r"it read Mod in y: TypeError.*ops/elementwise.py"):
        from_onnx(model)
