"""Emulation of kernels: C functions that run them item by item on the CPU.

Thread 0 of the runtime launches; the others skip. `dialect/cpu/` runs the items.
"""

from pathlib import Path

from pockengine.backends.gpu.kernel import GpuKernel
from pockengine.backends.gpu.source import DIALECT
from pockengine.backends.native.kernel import Kernel
from pockengine.backends.native.runtime_files import copy_for_gpu

HEADER = """#include "pe_worker.h"
#include "pe_gpu_cpu.h"
"""
"""Head of each file of kernels."""


def emulate(kernel: GpuKernel) -> Kernel:
    """Return the C function that performs a kernel's launches."""
    arguments = [f"{'' if p.written else 'const '}void *{p.name}" for p in kernel.parameters]
    names = [p.name for p in kernel.parameters]
    calls, launches = launch_rows(kernel)
    if not kernel.scratch_bytes:
        arguments.append("void *scratch")
    head = f"void {kernel.symbol}({', '.join(['pe_worker *w', *arguments])})"
    pointers = ", ".join(f"(void *){name}" for name in names)
    body = [
        "    static const pe_gpu_launch launches[] = {",
        *(f"        {row}" for row in launches),
        "    };",
        f"    void *const pointers[] = {{{pointers}}};",
        "    (void)scratch;",
        f"    for (int n = 0; n < {len(kernel.launches)} && w->index == 0; n++) {{",
        "        pe_gpu_run(&launches[n], pointers);",
        "    }",
    ]
    source = "\n".join([kernel.text, *calls, head + " {", *body, "}\n"])
    return Kernel(kernel.symbol, head, source, kernel.scratch_bytes)


def launch_rows(kernel: GpuKernel) -> tuple[list[str], list[str]]:
    """Return a C function per launch that unpacks its pointers, and its pe_gpu_launch."""
    passed = ", ".join(f"pointers[{place}]" for place in range(len(kernel.parameters)))
    calls, rows = [], []
    for launch in kernel.launches:
        calls.append(
            f"static void {launch.function}_call(void *const *pointers) {{\n"
            f"    {launch.function}({passed});\n}}\n"
        )
        row = f'"{launch.function}", {launch.function}_call, {launch.groups}, {launch.items}'
        rows.append(f"{{{row}}},")
    return calls, rows


def copy_dialect(runtime: Path) -> None:
    """Copy the headers that kernels include beside the C runtime."""
    copy_for_gpu([*DIALECT.glob("*.h"), *(DIALECT / "cpu").glob("*.[ch]")], runtime)
