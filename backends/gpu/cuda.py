"""The CUDA backend: the program that launches the kernels embeds them as a cubin.

Building it needs only NVRTC of CUDA, and running it needs only a driver: `libcuda.so.1`, which the
program loads when it starts.
"""

from pathlib import Path

from pockengine.backends.gpu.code_cache import cached_code
from pockengine.backends.gpu.driven import DrivenBackend
from pockengine.backends.gpu.launches import image_symbol
from pockengine.backends.gpu.nvrtc import OPTIONS, build_cubin, compiler_version
from pockengine.backends.gpu.source import CUDA
from pockengine.backends.picking import Picker, cheapest
from pockengine.backends.protocol import Built, Progress
from pockengine.compiler.program import Program
from pockengine.devices.schema import Device

KERNELS, CUBIN, IMAGE = "kernels.cu", "kernels.cubin", "cubin.c"
"""Files in an artifact's folder `code`: the text, the cubin built by NVRTC, and the cubin as C."""

IN_A_LINE = 64


class CudaBackend(DrivenBackend):
    """Writes programs for one NVIDIA device; `bf16` and `pick` are as in the GPU backend."""

    def __init__(self, device: Device, bf16: bool = False, pick: Picker = cheapest) -> None:
        super().__init__(device, (CUDA, "CUDA", KERNELS), bf16, pick)

    def write(self, program: Program, folder: Path) -> None:
        """Write the kernels' text, the launching program, and the head of the cubin's C file."""
        super().write(program, folder)
        head = _image_head(image_symbol(program), self.device.gpu.architecture)
        (folder / IMAGE).write_text(head, encoding="utf-8")

    def build(self, code: Path, out: Path, progress: Progress | None = None) -> Built:
        """Build the kernels with NVRTC into the cubin's C file, then the program."""
        architecture = self.device.gpu.architecture
        if progress is not None:
            progress(f"building {KERNELS} for {architecture}")
        text = (code / KERNELS).read_text(encoding="utf-8")
        identity = [architecture, str(compiler_version()), *OPTIONS, text]
        cubin = cached_code(identity, lambda: build_cubin(text, architecture).code)
        (code / CUBIN).write_bytes(cubin)
        with (code / IMAGE).open("a", encoding="utf-8") as file:
            file.write(_image_text(cubin))
        return super().build(code, out, progress)


def _image_head(symbol: str, architecture: str) -> str:
    """Return the start of the cubin's C file: its declaration, and the GPU."""
    return (
        '#include "pe_gpu.h"\n\n'
        f"#define IMAGE {symbol}\n"
        f'#define ARCHITECTURE "{architecture}"\n\n'
        "extern const pe_gpu_image IMAGE;\n\n"
    )


def _image_text(data: bytes) -> str:
    """Return the rest: the bytes of a cubin."""
    lines = (data[start : start + IN_A_LINE] for start in range(0, len(data), IN_A_LINE))
    rows = "\n".join(f'    "{_octal(line)}"' for line in lines)
    return (
        "static const unsigned char code[] __attribute__((aligned(PE_ALIGN))) =\n"
        f"{rows};\n\n"
        f"const pe_gpu_image IMAGE = {{ARCHITECTURE, {compiler_version()}, code}};\n"
    )


def _octal(data: bytes) -> str:
    return "".join(f"\\{byte:03o}" for byte in data)
