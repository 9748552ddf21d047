"""Sessions by ONNX Runtime: frozen weights, wrong indices, what is missing or refused."""

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

import pockengine
from pockengine import extras
from pockengine.api import Compiled
from pockengine.backends.onnx.bindings import model_name
from pockengine.backends.onnx.runtime import Model
from pockengine.compiler.ir import F32, I32, Builder, DType, Graph, TensorType
from pockengine.compiler.ops.random import uniform
from pockengine.devices import load_device
from pockengine.errors import (
    CompileError,
    DeviceError,
    MissingPackage,
    RuntimeFailure,
    TrainingDiverged,
)
from pockengine.tests.backends.inputs import draw
from pockengine.tests.compiler.small_nets import residual_net


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return pockengine.compile(residual_net(), None, backend="onnx", scheme="head-only")


def test_a_frozen_weight_that_is_set_is_computed_with(compiled: Compiled) -> None:
    batch = draw(compiled.graph, 0)
    weight = compiled.graph.params["b.0.weight"].data * np.float32(1.5)
    other = residual_net()
    other.params["b.0.weight"].data = weight
    wanted = pockengine.compile(other, None, backend="onnx", scheme="head-only")

    with compiled.session() as session, wanted.session() as reference:
        first = session.evaluate(batch)["loss"]
        session.set_param("b.0.weight", weight)
        changed = session.evaluate(batch)["loss"]
        assert changed != first
        assert changed == pytest.approx(float(reference.evaluate(batch)["loss"]), rel=1e-6)
        np.testing.assert_array_equal(session.get_param("b.0.weight"), weight)


def test_steps_write_nothing_but_what_trains(compiled: Compiled) -> None:
    with compiled.session() as session:
        before = session.params()
        session.train_step(draw(compiled.graph, 0), 0.1)
        changed = {
            name for name, array in session.params().items() if (array != before[name]).any()
        }
    assert {"fc.weight", "fc.bias"} <= changed
    assert not {name for name in changed if name.endswith("0.weight")}


def test_a_session_lives_on_without_its_folder(tmp_path: Path) -> None:
    graph = residual_net()
    compiled = pockengine.compile(
        graph, None, backend="onnx", scheme="head-only", folder=tmp_path / "net"
    )
    with compiled.session() as session:
        shutil.rmtree(tmp_path / "net")
        assert np.isfinite(session.train_step(draw(graph, 0), 0.1)["loss"])
        weight = graph.params["a.0.weight"].data
        np.testing.assert_array_equal(session.get_param("a.0.weight"), weight)


def test_a_wrong_label_is_refused_before_a_step(compiled: Compiled) -> None:
    batch = draw(compiled.graph, 0)
    batch["target"][1] = 3
    with compiled.session() as session:
        with pytest.raises(RuntimeFailure, match=r"input target holds 3 at \[1\]; entry train"):
            session.train_step(batch, 0.1)
        assert session.steps == 0


def test_a_training_that_diverged_is_not_saved(compiled: Compiled, tmp_path: Path) -> None:
    with compiled.session() as session:
        session.set_param("fc.bias", np.full(3, np.nan, np.float32))
        with pytest.raises(TrainingDiverged, match=r"fc\.bias is not finite"):
            session.save(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


def test_a_closed_session_says_so(compiled: Compiled) -> None:
    session = compiled.session()
    session.close()
    with pytest.raises(RuntimeFailure, match="the session is closed"):
        session.evaluate(draw(compiled.graph, 0))


def test_random_numbers_are_the_oracles_bit_for_bit() -> None:
    g = Builder(Graph("drawn"))
    seed = g.input("seed", TensorType(I32, ()))
    w = g.param("w", np.ones((), np.float32))
    drawn = g.random_uniform(seed, shape=(3, 1000), stream=5)
    g.output("drawn", drawn)
    g.output("loss", g.reduce_mean(g.mul(w, drawn), axes=(0, 1)))
    compiled = pockengine.compile(g.graph, None, backend="onnx")
    with compiled.session() as session:
        for number in (0, 77, -5):
            found = session.predict({"seed": np.asarray(number, np.int32)})["drawn"]
            np.testing.assert_array_equal(found.reshape(-1), uniform(number, 5, 3000))


def test_what_is_not_installed_is_named(
    compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda module: None)
    with pytest.raises(MissingPackage, match=r"onnxruntime, not installed.*pockengine\[onnxrun"):
        compiled.session()
    with pytest.raises(MissingPackage, match=r"the backend onnx needs onnx, not installed"):
        pockengine.compile(residual_net(), None, backend="onnx")


def test_a_runtime_that_is_too_old_is_named(
    compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxruntime.__version__", "1.9.0")
    with pytest.raises(MissingPackage, match=r"onnxruntime 1\.20 or newer, not 1\.9\.0: pip"):
        compiled.session()


def test_a_refused_node_is_named_with_its_layer() -> None:
    """The runtime's words hold the ONNX node's name, which is our node with the user's layer."""
    g = Builder(Graph("net"))
    x = g.input("x", TensorType(F32, (2, 3)))
    with g.scope("encoder.layer.1"):
        y = g.matmul(x, g.param("w", np.ones((3, 3), np.float32)))
    g.output("loss", g.reduce_mean(y, axes=(0, 1)))
    compiled = pockengine.compile(g.graph, None, backend="onnx")
    path = compiled.artifact.folder / "code" / model_name("train")
    model = onnx.load(path, load_external_data=False)
    next(node for node in model.graph.node if node.op_type == "Gemm").op_type = "Gemmm"
    with pytest.raises(RuntimeFailure, match=r"refuses train\.onnx: .*matmul.* in encoder\.layer"):
        Model("train", model.SerializeToString(), {}, 1)


def test_an_op_without_a_form_is_refused_by_name() -> None:
    g = Builder(Graph("net"))
    mask = g.gt(g.input("x", TensorType(F32, (2, 40))), g.scalar(0.0))
    with g.scope("features.3"):
        packed = g.pack_mask(mask)
    w = g.param("w", np.ones((), np.float32))
    g.output("loss", g.mul(w, g.reduce_sum(g.cast(packed, dtype="f32"), axes=(0, 1))))
    with pytest.raises(CompileError, match=r"in features\.3: target onnx on host has no pack_mask"):
        pockengine.compile(g.graph, None, backend="onnx")


def test_a_product_of_integers_is_refused_by_name() -> None:
    g = Builder(Graph("net"))
    x = g.input("x", TensorType(DType.I8, (2, 3)))
    with g.scope("fc"):
        sums = g.matmul(x, g.constant(np.ones((3, 4), np.int8), "weight"))
    w = g.param("w", np.ones((), np.float32))
    g.output("loss", g.mul(w, g.reduce_sum(g.cast(sums, dtype="f32"), axes=(0, 1))))
    with pytest.raises(CompileError, match=r"in fc: the backend onnx multiplies f32 alone, not i8"):
        pockengine.compile(g.graph, None, backend="onnx")


def test_a_backend_that_a_device_does_not_take_is_refused() -> None:
    with pytest.raises(DeviceError, match=r"snapdragon-dsp takes no backend 'onnx', but c; name"):
        pockengine.compile(residual_net(), None, device="snapdragon-dsp", backend="onnx")
    assert load_device("rpi4").on("onnx").backend == "onnx"
    assert load_device("host").on("c") == load_device("host").on(None) == load_device("host")


def test_an_option_that_the_backend_lacks_is_refused_by_name() -> None:
    with pytest.raises(CompileError, match="backend onnx has no option bf16"):
        pockengine.compile(residual_net(), None, backend="onnx", bf16=True)
