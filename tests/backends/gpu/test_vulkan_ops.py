"""Every op with Vulkan on this machine equals the oracle: Mesa's lavapipe, a CPU."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pockengine.backends.artifact import write_artifact
from pockengine.backends.gpu.vulkan import VulkanBackend
from pockengine.backends.registry import open_session
from pockengine.compiler.compile import compile_entries
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ops.attention import GRADIENTS
from pockengine.devices import load_device
from pockengine.tests.backends.gpu.cases import KINDS
from pockengine.tests.backends.gpu.oracle import drawn
from pockengine.tests.backends.gpu.watched_vulkan import validation
from pockengine.tests.compiler.every_op import graph_of


@pytest.fixture(scope="module", autouse=True)
def validated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with validation(tmp_path_factory.mktemp("layers")):
        yield


@pytest.mark.parametrize("kind", KINDS)
def test_every_op_equals_the_oracle(kind: str, tmp_path: Path) -> None:
    graphs = {f"case{number}": graph_of(case) for number, case in enumerate(KINDS[kind])}
    backend = VulkanBackend(load_device("host-vulkan"))
    program = compile_entries("cases", graphs, target=backend.target())
    artifact = write_artifact(program, backend, tmp_path / "artifact")
    with open_session(artifact) as session:
        for (key, graph), case in zip(graphs.items(), KINDS[kind], strict=True):
            inputs = drawn(graph)
            if case.op in GRADIENTS:  # row maxima and sums
                inputs["x4"] = np.abs(inputs["x4"]) + 10
            results = session.run(key, inputs)
            for name, expected in run(graph, inputs, {}).items():
                np.testing.assert_allclose(
                    results[name], expected, rtol=1e-4, atol=1e-4, err_msg=str(graph.nodes[0])
                )
