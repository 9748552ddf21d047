"""Op cases and trainings with Vulkan on this machine: Mesa's lavapipe, under validation layers.

Without Vulkan or Slang's compiler the tests are skipped.
"""

import ctypes
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import pockengine
from pockengine.backends.artifact import write_artifact
from pockengine.backends.gpu.vulkan import VulkanBackend
from pockengine.backends.registry import open_session
from pockengine.compiler.compile import compile_entries
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ops.attention import GRADIENTS
from pockengine.devices import load_device
from pockengine.tests.backends.gpu.cases import KINDS
from pockengine.tests.backends.gpu.driven import trained
from pockengine.tests.backends.gpu.oracle import drawn
from pockengine.tests.backends.gpu.test_opencl_sessions import NETS
from pockengine.tests.compiler.every_op import graph_of

VULKAN = {"device": "host-vulkan", "backend": "vulkan"}
LAYER = "VK_LAYER_KHRONOS_validation"


def _has_vulkan() -> bool:
    """Whether this machine has Vulkan's loader, a driver, and Slang's compiler."""
    try:
        ctypes.CDLL("libvulkan.so.1")
    except OSError:
        return False
    return any(Path("/usr/share/vulkan/icd.d").glob("*")) and find_spec("slangpy") is not None


@pytest.fixture(scope="module", autouse=True)
def validated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Validation layers, where they are installed, report nothing."""
    if not _has_vulkan():
        pytest.skip("this machine has no Vulkan driver, or no slangpy")
    folder = tmp_path_factory.mktemp("layers")
    log, settings = folder / "log", folder / "vk_layer_settings.txt"
    settings.write_text(
        "khronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG\n"
        "khronos_validation.report_flags = error,warn\n"
        f"khronos_validation.log_filename = {log}\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        if any(Path("/usr/share/vulkan/explicit_layer.d").glob("*khronos_validation*")):
            patch.setenv("VK_INSTANCE_LAYERS", LAYER)
            patch.setenv("VK_LAYER_SETTINGS_PATH", str(settings))
        yield
    assert not log.exists() or not log.read_text()


@pytest.mark.parametrize("kind", KINDS)
def test_every_size_is_what_the_oracle_says(kind: str, tmp_path: Path) -> None:
    graphs = {f"case{number}": graph_of(case) for number, case in enumerate(KINDS[kind])}
    backend = VulkanBackend(load_device("host-vulkan"))
    program = compile_entries("cases", graphs, target=backend.target())
    artifact = write_artifact(program, backend, tmp_path / "made")
    with open_session(artifact) as session:
        for (key, graph), case in zip(graphs.items(), KINDS[kind], strict=True):
            inputs = drawn(graph)
            if case.op in GRADIENTS:  # row maxima and sums
                inputs["x4"] = np.abs(inputs["x4"]) + 10
            found = session.run(key, inputs)
            for name, array in run(graph, inputs, {}).items():
                np.testing.assert_allclose(
                    found[name], array, rtol=1e-4, atol=1e-4, err_msg=str(graph.nodes[0])
                )


@pytest.mark.parametrize("name", NETS)
def test_ten_steps_are_those_of_c(name: str) -> None:
    graph, options = NETS[name]
    with pockengine.compile(graph, None, **VULKAN, **options).session() as session:
        found = trained(session, graph)
    with pockengine.compile(graph, None, backend="c", **options).session() as session:
        wanted = trained(session, graph)
    for key, array in wanted.items():
        most = max(1.0, float(np.abs(array).max()))
        np.testing.assert_allclose(found[key], array, rtol=1e-4, atol=1e-4 * most, err_msg=key)
