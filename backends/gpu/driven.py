"""Base of backends with a GPU driver: a C program launches the kernels from tables.

It uses the choices and the plan of the GPU backend. The program loads the driver's library at
start, so building needs no driver.
"""

from dataclasses import replace
from pathlib import Path

from pockengine.backends.gpu.backend import GpuBackend
from pockengine.backends.gpu.kernel import GpuKernel
from pockengine.backends.gpu.launches import launching_program
from pockengine.backends.gpu.source import source_of
from pockengine.backends.native.build import build
from pockengine.backends.native.package import cmake_lists, package
from pockengine.backends.native.runtime_files import GPU, LIBRARY, copy_for_gpu, copy_runtime
from pockengine.backends.picking import Picker, cheapest
from pockengine.backends.placement import kernel_nodes
from pockengine.backends.protocol import Built, CodeFacts, Progress
from pockengine.compiler.ir import Node
from pockengine.compiler.program import Program
from pockengine.compiler.target import Choice, MemorySpace, Target
from pockengine.devices.schema import Device
from pockengine.errors import CompileError

RUNTIME = Path(__file__).parent / "runtime"

LIBRARIES = ("dl",)

STATIC, DYNAMIC = "-linux-musl", "-linux-gnu.2.28"
"""Static programs cannot load a driver: the first target suffix is replaced by the second."""


class DrivenBackend:
    """Writes programs for one device and one driver: cuda, opencl or vulkan.

    `names` are the language's identifier, its display name, and the artifact's file of kernels;
    `bf16` and `pick` are as in the GPU backend.
    """

    def __init__(
        self,
        device: Device,
        names: tuple[str, str, str],
        bf16: bool = False,
        pick: Picker = cheapest,
    ) -> None:
        language, title, kernels_file = names
        if device.graphics is None or language not in device.graphics.languages:
            raise CompileError(
                f"device {device.name} has no GPU that takes {title}; describe one in a [gpu] "
                f'table of its file, with language = "{language}", or choose another backend'
            )
        self.device = _launching(device)
        self._gpu = GpuBackend(device, bf16, pick)
        self._language, self._kernels_file = language, kernels_file

    def target(self) -> Target:
        """Return the target of the GPU backend, with the GPU's memory."""
        memory = self.device.gpu.memory_bytes or self.device.memory_bytes
        name = f"{self._language} on {self.device.name}"
        return replace(self._gpu.target(), name=name, spaces=(MemorySpace(size=memory),))

    def choose(self, node: Node) -> Choice:
        """Choose as in the GPU backend."""
        return self._gpu.choose(node)

    def with_less_scratch(self) -> None:
        """Return None: no kernel can use less scratch."""

    def facts(self, program: Program) -> CodeFacts:
        """Return the driver, one launching thread, and the number of kernels."""
        symbols = {kernel.symbol for kernel in self.kernels(program)}
        names = filter(None, (self._language, self.device.gpu.architecture))
        return CodeFacts(", ".join(names), 1, len(symbols))

    def write(self, program: Program, folder: Path) -> None:
        """Write the kernels' text, the tables of their launches, and the runtime."""
        runtime = f"pe_{self._language}"
        files = launching_program(program, self._gpu.gpu_kernel, self.device, runtime)
        files["CMakeLists.txt"] = cmake_lists(program, self.device, LIBRARIES, (*LIBRARY, GPU))
        files[self._kernels_file] = source_of(self.kernels(program), self._language)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        copy_runtime(folder / "runtime")
        for pattern in ("pe_gpu*.[ch]", f"{runtime}*.[ch]"):
            copy_for_gpu(sorted(RUNTIME.glob(pattern)), folder / "runtime")

    def build(self, code: Path, out: Path, progress: Progress | None = None) -> Built:
        """Build the program, which embeds the kernels."""
        return build(code, self.device, out, progress, libraries=LIBRARIES)

    def package(self, program: Program, code: Path, place: Path) -> None:
        """Write the files that C and C++ programs link."""
        package(program, self.device, code, place, libraries=LIBRARIES)

    def timed(self, node: Node, choice: Choice | None = None) -> tuple[str, int]:
        """Return a kernel's symbol and number of launches, which are timed one by one."""
        kernel = self._gpu.gpu_kernel(node)
        return kernel.symbol, len(kernel.launches)

    def kernels(self, program: Program) -> list[GpuKernel]:
        """Return the kernel of each node with one, by entry."""
        entries = program.entries.values()
        return [self._gpu.gpu_kernel(node) for entry in entries for node in kernel_nodes(entry)]


def _launching(device: Device) -> Device:
    """Return the device for a launching program: one thread, and dynamic loading."""
    toolchain = device.toolchain
    if toolchain.target.endswith(STATIC):
        toolchain = replace(toolchain, target=toolchain.target.removesuffix(STATIC) + DYNAMIC)
    return replace(device, processor=replace(device.cpu, cores=1), compiler=toolchain)
