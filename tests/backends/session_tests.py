"""Tests that every runtime passes; derived classes name its backend."""

import shutil
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import pockengine
from pockengine.compiled import Compiled
from pockengine.compiler.ir import F32, I32, Builder, DType, Graph, TensorType
from pockengine.compiler.ops.random import uniform
from pockengine.devices import load_device
from pockengine.errors import CompileError, DeviceError, RuntimeFailure, TrainingDiverged
from pockengine.tests.backends.inputs import draw
from pockengine.tests.compiler.small_nets import residual_net


def product_in_a_layer() -> Graph:
    """Return a graph whose matrix product is in the user's layer `encoder.layer.1`."""
    g = Builder(Graph("net"))
    x = g.input("x", TensorType(F32, (2, 3)))
    with g.scope("encoder.layer.1"):
        y = g.matmul(x, g.param("w", np.ones((3, 3), np.float32)))
    g.output("loss", g.reduce_mean(y, axes=(0, 1)))
    return g.graph


class SessionTests:
    """Derive `TestSession` from it, with a backend."""

    backend: ClassVar[str]
    device: ClassVar[str] = "host"

    @pytest.fixture(scope="class")
    @classmethod
    def compiled(cls) -> Compiled:
        """A net whose head trains."""
        return cls.made(residual_net(), scheme="head-only")

    @classmethod
    def made(cls, graph: Graph, **options: Any) -> Compiled:
        """Compile for the class's backend."""
        return pockengine.compile(graph, None, backend=cls.backend, device=cls.device, **options)

    def test_a_frozen_weight_that_is_set_is_computed_with(self, compiled: Compiled) -> None:
        batch = draw(compiled.graph, 0)
        weight = compiled.graph.params["b.0.weight"].data * np.float32(1.5)
        other = residual_net()
        other.params["b.0.weight"].data = weight
        expected = self.made(other, scheme="head-only")

        with compiled.session() as session, expected.session() as reference:
            first = session.evaluate(batch)["loss"]
            session.set_param("b.0.weight", weight)
            changed = session.evaluate(batch)["loss"]
            assert changed != first
            assert changed == pytest.approx(float(reference.evaluate(batch)["loss"]), rel=1e-6)
            np.testing.assert_array_equal(session.get_param("b.0.weight"), weight)

    def test_steps_write_nothing_but_what_trains(self, compiled: Compiled) -> None:
        with compiled.session() as session:
            before = session.params()
            session.train_step(draw(compiled.graph, 0), 0.1)
            changed = {
                name for name, array in session.params().items() if (array != before[name]).any()
            }
        assert {"fc.weight", "fc.bias"} <= changed
        assert not {name for name in changed if name.endswith("0.weight")}

    def test_a_session_lives_on_without_its_folder(self, tmp_path: Path) -> None:
        graph = residual_net()
        compiled = self.made(graph, scheme="head-only", folder=tmp_path / "net")
        with compiled.session() as session:
            shutil.rmtree(tmp_path / "net")
            assert np.isfinite(session.train_step(draw(graph, 0), 0.1)["loss"])
            weight = graph.params["a.0.weight"].data
            np.testing.assert_array_equal(session.get_param("a.0.weight"), weight)

    def test_a_wrong_label_is_refused_before_a_step(self, compiled: Compiled) -> None:
        batch = draw(compiled.graph, 0)
        batch["target"][1] = 3
        with compiled.session() as session:
            with pytest.raises(RuntimeFailure, match=r"input target holds 3 at \[1\]; entry train"):
                session.train_step(batch, 0.1)
            assert session.steps == 0

    def test_a_training_that_diverged_is_not_saved(
        self, compiled: Compiled, tmp_path: Path
    ) -> None:
        with compiled.session() as session:
            session.set_param("fc.bias", np.full(3, np.nan, np.float32))
            with pytest.raises(TrainingDiverged, match=r"fc\.bias is not finite"):
                session.save(tmp_path / "saved")
        assert not (tmp_path / "saved").exists()

    def test_a_link_that_is_saved_to_is_replaced(self, compiled: Compiled, tmp_path: Path) -> None:
        (tmp_path / "thesis").write_text("years of work")
        (tmp_path / "lnk").symlink_to("thesis")
        with compiled.session() as session:
            session.save(tmp_path / "lnk")
            session.load(tmp_path / "lnk")
        assert not (tmp_path / "lnk").is_symlink()
        assert (tmp_path / "thesis").read_text() == "years of work"

    def test_a_path_with_a_nul_is_refused(self, compiled: Compiled, tmp_path: Path) -> None:
        (tmp_path / "thesis").write_text("years of work")
        path = f"{tmp_path}/thesis\0.safetensors"
        with compiled.session() as session:
            for use in (session.save, session.load):
                with pytest.raises(RuntimeFailure, match=r"thesis\\x00.* holds a NUL"):
                    use(path)
        assert (tmp_path / "thesis").read_text() == "years of work"

    @pytest.mark.parametrize("threads", [0, -5, 1_000_000, 1.5, None])
    def test_threads_that_are_no_count_are_refused(self, compiled: Compiled, threads: Any) -> None:
        with pytest.raises(RuntimeFailure, match="threads must be from 1 to 4096"):
            compiled.session(threads=threads)

    def test_a_closed_session_says_so(self, compiled: Compiled) -> None:
        session = compiled.session()
        session.close()
        with pytest.raises(RuntimeFailure, match="the session is closed"):
            session.evaluate(draw(compiled.graph, 0))

    def test_random_numbers_are_the_oracles_bit_for_bit(self) -> None:
        g = Builder(Graph("drawn"))
        seed = g.input("seed", TensorType(I32, ()))
        w = g.param("w", np.ones((), np.float32))
        drawn = g.random_uniform(seed, shape=(3, 1000), stream=5)
        g.output("drawn", drawn)
        g.output("loss", g.reduce_mean(g.mul(w, drawn), axes=(0, 1)))
        compiled = self.made(g.graph)
        with compiled.session() as session:
            for number in (0, 77, -5):
                found = session.predict({"seed": np.asarray(number, np.int32)})["drawn"]
                np.testing.assert_array_equal(found.reshape(-1), uniform(number, 5, 3000))


class RefusalTests:
    """Graphs that the compiler refuses for a runtime; derive `TestRefusals` from it."""

    backend: ClassVar[str]

    def test_an_op_without_a_form_is_refused_by_name(self) -> None:
        g = Builder(Graph("net"))
        mask = g.gt(g.input("x", TensorType(F32, (2, 40))), g.scalar(0.0))
        with g.scope("features.3"):
            packed = g.pack_mask(mask)
        w = g.param("w", np.ones((), np.float32))
        g.output("loss", g.mul(w, g.reduce_sum(g.cast(packed, dtype="f32"), axes=(0, 1))))
        message = rf"in features\.3: target {self.backend} on host has no pack_mask"
        with pytest.raises(CompileError, match=message):
            pockengine.compile(g.graph, None, backend=self.backend)

    def test_a_product_of_integers_is_refused_by_name(self) -> None:
        g = Builder(Graph("net"))
        x = g.input("x", TensorType(DType.I8, (2, 3)))
        with g.scope("fc"):
            sums = g.matmul(x, g.constant(np.ones((3, 4), np.int8), "weight"))
        w = g.param("w", np.ones((), np.float32))
        g.output("loss", g.mul(w, g.reduce_sum(g.cast(sums, dtype="f32"), axes=(0, 1))))
        with pytest.raises(
            CompileError, match=r"in fc: the backend \w+ multiplies f32 alone, not i8"
        ):
            pockengine.compile(g.graph, None, backend=self.backend)

    def test_a_backend_that_a_device_does_not_take_is_refused(self) -> None:
        message = f"snapdragon-dsp takes no backend '{self.backend}', but c; name"
        with pytest.raises(DeviceError, match=message):
            pockengine.compile(residual_net(), None, device="snapdragon-dsp", backend=self.backend)
        assert load_device("rpi4").on(self.backend).backend == self.backend
        assert load_device("host").on("c") == load_device("host").on(None) == load_device("host")

    def test_an_option_that_the_backend_lacks_is_refused_by_name(self) -> None:
        with pytest.raises(CompileError, match=f"backend {self.backend} has no option bf16"):
            pockengine.compile(residual_net(), None, backend=self.backend, bf16=True)
