"""The backend that CUDA's driver runs: kernels as a cubin, and a C program that launches them.

It makes the choices and the plan of the GPU backend. The program loads `libcuda.so.1` when it
starts, so that nothing of CUDA is needed to build it but NVRTC, and nothing to run it but a driver.
"""

import shutil
from dataclasses import replace
from pathlib import Path

from pockengine.backends.c.build import build, copy_runtime
from pockengine.backends.c.package import cmake_lists, package
from pockengine.backends.gpu.backend import GpuBackend
from pockengine.backends.gpu.cubins import kept_cubin
from pockengine.backends.gpu.kernel import GpuKernel
from pockengine.backends.gpu.launches import image_symbol, launching_program
from pockengine.backends.gpu.nvrtc import compiler_version
from pockengine.backends.gpu.source import CUDA, source_of
from pockengine.backends.placement import kernel_nodes
from pockengine.backends.protocol import Built, Facts, Progress
from pockengine.compiler.ir import Node
from pockengine.compiler.program import Program
from pockengine.compiler.target import Choice, MemorySpace, Target
from pockengine.devices.schema import Device
from pockengine.errors import CompileError

RUNTIME = Path(__file__).parent / "runtime"
KERNELS, CUBIN, IMAGE = "kernels.cu", "kernels.cubin", "cubin.c"
"""Files in an artifact's folder `code`: the text, what NVRTC makes of it, and that as C."""

LIBRARIES = ("dl",)

STATIC, DYNAMIC = "-linux-musl", "-linux-gnu.2.28"
"""A static program loads no driver: the first target becomes the second."""

IN_A_LINE = 64


class CudaBackend:
    """Writes programs for one device of NVIDIA's."""

    def __init__(self, device: Device) -> None:
        if device.graphics is None or device.graphics.language != CUDA:
            raise CompileError(
                f"device {device.name} has no GPU that takes CUDA; describe one in a [gpu] table "
                'of its file, with language = "cuda", or choose another backend'
            )
        self.device = _launching(device)
        self._gpu = GpuBackend(device)

    def target(self) -> Target:
        """Return the target of the GPU backend, with the GPU's memory."""
        memory = self.device.gpu.memory_bytes or self.device.memory_bytes
        name = f"cuda on {self.device.name}"
        return replace(self._gpu.target(), name=name, spaces=(MemorySpace(size=memory),))

    def choose(self, node: Node) -> Choice:
        """Choose as the GPU backend does."""
        return self._gpu.choose(node)

    def frugal(self) -> None:
        """Return None: no kernel could do with less."""

    def facts(self, program: Program) -> Facts:
        """Return the architecture, one thread, which launches, and the number of kernels."""
        symbols = {kernel.symbol for kernel in self.kernels(program)}
        return Facts(f"cuda, {self.device.gpu.architecture}", 1, len(symbols))

    def write(self, program: Program, folder: Path) -> None:
        """Write the kernels' text, the tables of their launches, and the runtime."""
        files = launching_program(program, self._gpu.gpu_kernel, self.device)
        files["CMakeLists.txt"] = cmake_lists(program, self.device, LIBRARIES)
        files[KERNELS] = source_of(self.kernels(program), CUDA)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        copy_runtime(folder / "runtime")
        for source in sorted(RUNTIME.glob("*.[ch]")):
            shutil.copyfile(source, folder / "runtime" / source.name)
        head = _image_head(image_symbol(program), self.device.gpu.architecture)
        (folder / IMAGE).write_text(head, encoding="utf-8")

    def build(self, code: Path, out: Path, progress: Progress | None = None) -> Built:
        """Build the kernels by NVRTC into the file that the others refer to, and all of them."""
        architecture = self.device.gpu.architecture
        if progress is not None:
            progress(f"building {KERNELS} for {architecture}")
        cubin = kept_cubin((code / KERNELS).read_text(encoding="utf-8"), architecture)
        (code / CUBIN).write_bytes(cubin)
        with (code / IMAGE).open("a", encoding="utf-8") as file:
            file.write(_image_text(cubin))
        return build(code, self.device, out, progress, LIBRARIES)

    def package(self, program: Program, code: Path, place: Path) -> None:
        """Write what C and C++ programs link."""
        package(program, self.device, code, place, LIBRARIES)

    def kernels(self, program: Program) -> list[GpuKernel]:
        """Return the kernel of each node that has one, entry by entry."""
        entries = program.entries.values()
        return [self._gpu.gpu_kernel(node) for entry in entries for node in kernel_nodes(entry)]


def _launching(device: Device) -> Device:
    """Return the device for a program that launches: one thread, and libraries can be loaded."""
    toolchain = device.toolchain
    if toolchain.target.endswith(STATIC):
        toolchain = replace(toolchain, target=toolchain.target.removesuffix(STATIC) + DYNAMIC)
    return replace(device, processor=replace(device.cpu, cores=1), compiler=toolchain)


def _image_head(symbol: str, architecture: str) -> str:
    """Return the beginning of the kernels' C file: what it will define, and for which GPU."""
    return (
        '#include "pe_gpu.h"\n\n'
        f"#define IMAGE {symbol}\n"
        f'#define ARCHITECTURE "{architecture}"\n\n'
        "extern const pe_gpu_image IMAGE;\n\n"
    )


def _image_text(data: bytes) -> str:
    """Return the rest: the code of a cubin."""
    lines = (data[start : start + IN_A_LINE] for start in range(0, len(data), IN_A_LINE))
    rows = "\n".join(f'    "{_octal(line)}"' for line in lines)
    return (
        "static const unsigned char code[] __attribute__((aligned(PE_ALIGN))) =\n"
        f"{rows};\n\n"
        f"const pe_gpu_image IMAGE = {{ARCHITECTURE, {compiler_version()}, code}};\n"
    )


def _octal(data: bytes) -> str:
    return "".join(f"\\{byte:03o}" for byte in data)
