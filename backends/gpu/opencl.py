"""The backend that OpenCL runs: the kernels' text within the program that launches them.

The driver builds the text when a session opens, so that nothing of OpenCL is needed to build the
program, and nothing to run it but `libOpenCL.so.1` and a driver of OpenCL 1.2 or later.
"""

from pathlib import Path

from pockengine.backends.gpu.driven import DrivenBackend
from pockengine.backends.gpu.launches import image_symbol
from pockengine.backends.gpu.source import OPENCL
from pockengine.backends.native.program import c_string
from pockengine.backends.picking import Picker, cheapest
from pockengine.compiler.program import Program
from pockengine.devices.schema import Device

KERNELS, IMAGE = "kernels.cl", "kernels.c"
"""Files in an artifact's folder `code`: the text, and the same as C."""


class OpenClBackend(DrivenBackend):
    """Writes programs for a device with a driver of OpenCL; `pick` is the GPU backend's."""

    def __init__(self, device: Device, pick: Picker = cheapest) -> None:
        super().__init__(device, (OPENCL, "OpenCL", KERNELS), pick=pick)

    def write(self, program: Program, folder: Path) -> None:
        """Write the kernels' text, what launches them, and the text as C."""
        super().write(program, folder)
        text = (folder / KERNELS).read_text(encoding="utf-8")
        (folder / IMAGE).write_text(_image(image_symbol(program), text), encoding="utf-8")


def _image(symbol: str, text: str) -> str:
    """Return a C file that defines the program's image as a text."""
    lines = "\n".join(f"    {c_string(line)}" for line in text.splitlines(keepends=True))
    return (
        '#include "pe_gpu.h"\n\n'
        f"static const unsigned char text[] =\n{lines};\n\n"
        f"extern const pe_gpu_image {symbol};\n"
        f'const pe_gpu_image {symbol} = {{"", 0, text}};\n'
    )
