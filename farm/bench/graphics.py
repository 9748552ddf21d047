"""The bench by a GPU: which boards support it, and an emulated board's replacement of the driver.

QEMU has no GPU. There the kernels run on the emulated CPU, item by item: losses and weights are
checked as those of any run, and no speed is reported. There is none either if this machine's OpenCL
or Vulkan has only a CPU.
"""

from pathlib import Path

from pockengine.compiled import Compiled
from pockengine.devices import load_device
from pockengine.errors import FarmError
from pockengine.farm.bench.peers import OURS
from pockengine.farm.boards.board import Board, Local
from pockengine.farm.gpu import opencl, vulkan
from pockengine.farm.gpu.driver import emulated_gpu

CUDA, OPENCL, VULKAN = "cuda", "opencl", "vulkan"
DRIVERS = {OPENCL: ("OpenCL", opencl.first_device), VULKAN: ("Vulkan", vulkan.first_device)}
"""Names of drivers that may have only a CPU, and what finds their device, by backend."""

MODELS = ("mobilenet_v2-0.35-96", "llama-260k-32")
SCHEMES = ("full", "last-2-blocks")
"""Models of `--suite=gpu`: pictures and tokens, small enough for an emulated CPU."""

EMULATED = (
    "The GPU is emulated: a driver that is none ran the kernels on the emulated CPU. What the host "
    "did, losses and weights are checked; no GPU has run this, and there is no speed."
)


def check_gpu(backend: str | None, board: Board, int8: bool) -> None:
    """Raise an error for a board that has no such GPU, and for a model that the backend does not
    train.
    """
    load_device(board.device).on(backend)
    if backend in (CUDA, *DRIVERS) and int8:
        raise FarmError(f"--backend={backend} trains in f32; leave out --int8, or the backend")


def gpu_backend(board: Board) -> str:
    """Return the backend of a board's GPU, CUDA's where its device's file describes none."""
    gpu = load_device(board.device).graphics
    return CUDA if gpu is None else gpu.language


def why_not_timed(backend: str | None, board: Board) -> str | None:
    """Return why a run by a GPU has no speed; None if it has one, or if no GPU is used."""
    if backend == CUDA and board.emulated:
        return EMULATED
    if backend not in DRIVERS or not isinstance(board.place, Local):
        return None
    driver, first_device = DRIVERS[backend]
    device = first_device()
    if device.is_gpu:
        return None
    return (
        f"This machine's {driver} has no GPU: its {device.name} ran the kernels. Losses and "
        "weights are checked; no GPU has run this, and there is no speed."
    )


def engine_of(backend: str | None) -> str:
    """Return the name of our engine in records."""
    return OURS if backend is None else f"{OURS}-{backend}"


def gpu_libraries(
    backend: str | None, board: Board, compiled: Compiled, folder: Path
) -> dict[str, Path]:
    """Return the replacement of a GPU's driver on an emulated board, by names; else nothing."""
    if backend != CUDA or not board.emulated:
        return {}
    return emulated_gpu(load_device(board.device), compiled.program, folder / "gpu")
