"""This machine's Vulkan behind a library that counts calls and simulates faults."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from pockengine.backends.cache import own_cache
from pockengine.backends.gpu.driven import RUNTIME
from pockengine.backends.native.runtime_files import runtime_folders
from pockengine.errors import FarmError
from pockengine.farm.gpu.vulkan import first_device
from pockengine.tests.backends.gpu.watched import build_wrapper

SOURCE = Path(__file__).parent / "watched_vulkan.c"
LIBRARY = "libvulkan.so.1"
LAYER = "VK_LAYER_KHRONOS_validation"
LAYERS = Path("/usr/share/vulkan/explicit_layer.d")


def has_vulkan() -> bool:
    """Whether this machine has Vulkan with a driver, and Slang's compiler."""
    if find_spec("slangpy") is None:
        return False
    try:
        first_device()
    except FarmError:
        return False
    return True


def build_watched(folder: Path, flags: Sequence[str] = ()) -> None:
    """Build the library into a folder; `flags` define the fault."""
    includes = [f"-I{path}" for path in (RUNTIME, *runtime_folders())]
    build_wrapper(SOURCE, LIBRARY, folder, [*includes, *flags])


@contextmanager
def validation(folder: Path) -> Iterator[None]:
    """Fail if validation layers, where installed, report an error; skip without Vulkan.

    Warnings differ between versions of the layers.
    """
    if not has_vulkan():
        pytest.skip("this machine has no Vulkan driver, or no slangpy")
    log, settings = folder / "log", folder / "vk_layer_settings.txt"
    settings.write_text(
        "khronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG\n"
        "khronos_validation.report_flags = error\n"
        f"khronos_validation.log_filename = {log}\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MESA_SHADER_CACHE_DIR", str(own_cache() / "mesa"))
        if any(LAYERS.glob("*khronos_validation*")):
            patch.setenv("VK_INSTANCE_LAYERS", LAYER)
            patch.setenv("VK_LAYER_SETTINGS_PATH", str(settings))
        yield
    assert not log.exists() or not log.read_text()
