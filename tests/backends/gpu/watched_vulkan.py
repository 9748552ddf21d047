"""This machine's Vulkan behind a library that counts calls and simulates faults."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from pockengine.backends.gpu.driven import RUNTIME
from pockengine.backends.native.runtime_files import runtime_folders
from pockengine.errors import FarmError
from pockengine.farm.gpu.vulkan import first_device
from pockengine.tests.backends.gpu.watched import build_wrapper

SOURCE = Path(__file__).parent / "watched_vulkan.c"
LIBRARY = "libvulkan.so.1"


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
