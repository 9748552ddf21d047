"""The OpenCL backend: the program that launches the kernels embeds their text.

The driver compiles the text when a session opens. So building needs nothing of OpenCL, and running
needs only `libOpenCL.so.1` and a driver of OpenCL 1.2 or later.
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
"""Files in an artifact's folder `code`: the text, and the text as C."""


class OpenClBackend(DrivenBackend):
    """Writes programs for a device with an OpenCL driver; `pick` is as in the GPU backend."""

    def __init__(self, device: Device, pick: Picker = cheapest) -> None:
        super().__init__(device, (OPENCL, "OpenCL", KERNELS), pick=pick)

    def write(self, program: Program, folder: Path) -> None:
        """Write the kernels' text, the launching program, and the text as C."""
        super().write(program, folder)
        text = (folder / KERNELS).read_text(encoding="utf-8")
        (folder / IMAGE).write_text(_image(image_symbol(program), text), encoding="utf-8")


def _image(symbol: str, text: str) -> str:
    """Return a C file that defines the program's text."""
    lines = "\n".join(f"    {c_string(line)}" for line in text.splitlines(keepends=True))
    return (
        '#include "pe_gpu.h"\n\n'
        f"static const unsigned char text[] =\n{lines};\n\n"
        f"extern const pe_gpu_image {symbol};\n"
        f'const pe_gpu_image {symbol} = {{"", 0, text}};\n'
    )
