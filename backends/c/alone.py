"""Time kernels in isolation, with cached operands where they fit.

If a kernel is slower in a step, its operands were cold. The gap to the roofline here is due to its
code.
"""

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pockengine.backends.c.backend import CBackend
from pockengine.backends.native.build import FLAGS, link_flags, linker
from pockengine.backends.native.kernel import Kernel
from pockengine.backends.native.runtime_files import runtime_file, runtime_folders
from pockengine.backends.native.toolchain import find_toolchain
from pockengine.compiler.ir import Node
from pockengine.compiler.ir.types import F32
from pockengine.devices.schema import Device, load_device
from pockengine.errors import BuildError, RuntimeFailure

BENCH = Path(__file__).parent / "bench"
MOST_BUFFERS = 32
"""As in bench.h: maximum operands, results and scratch of one kernel."""


def time_alone(
    nodes: Sequence[Node], backend: CBackend, threads: int
) -> dict[str, tuple[float, float]]:
    """Return median and best nanoseconds by symbol; kernels with too many operands are left out.

    BuildError if the program does not compile, RuntimeFailure if it fails.
    """
    kernels = {backend.kernel(node).symbol: node for node in nodes}
    small = {
        symbol: node
        for symbol, node in kernels.items()
        if len(node.operands) + len(node.results) < MOST_BUFFERS
    }
    if not small:
        return {}
    pairs = [(backend.kernel(node), node) for node in small.values()]
    main = f"argc == 2 ? run_benches(benches, {len(pairs)}, atoi(argv[1])) : 2"
    times = run_bench_program(bench_program(pairs, main), threads)
    return {
        symbol: (1e9 * median, 1e9 * best)
        for symbol, (median, best) in zip(small, times, strict=True)
    }


def bench_program(kernels: Sequence[tuple[Kernel, Node]], main: str) -> str:
    """Return a C program on bench.h: `benches` call the nodes' kernels, `main` is the exit
    status.
    """
    calls, rows = [], []
    for index, (kernel, node) in enumerate(kernels):
        values = (*node.operands, *node.results)
        arguments = ", ".join(f"p[{i}]" for i in range(len(values) + 1))
        calls.append(
            f"{kernel.source}\nstatic void call_{index}(pe_worker *w, void **p) {{\n"
            f"    {kernel.symbol}(w, {arguments});\n}}"
        )
        sizes = ", ".join(str(value.type.nbytes) for value in values)
        kinds = "".join("f" if value.dtype is F32 else "0" for value in values)
        rows.append(f'    {{call_{index}, "{kinds}f", {{{sizes}, {kernel.scratch_bytes}}}}},')
    return "\n\n".join(
        [
            '#include "bench.h"',
            *calls,
            "static const bench benches[] = {\n" + "\n".join(rows) + "\n};",
            f"int main(int argc, char **argv) {{\n    return {main};\n}}\n",
        ]
    )


def run_bench_program(source: str, threads: int) -> list[tuple[float, float]]:
    """Compile a program on bench.h for this machine; return its seconds, median and best."""
    with tempfile.TemporaryDirectory(prefix="pockengine-bench-") as folder:
        program = Path(folder) / "bench"
        build_bench(source, load_device("host"), program)
        return read_times(run_bench([str(program), str(threads)]))


def build_bench(source: str, device: Device, program: Path, flags: Sequence[str] = ()) -> None:
    """Compile a program on bench.h for a device; BuildError with the compiler's output."""
    text = program.with_suffix(".c")
    text.write_text(source, encoding="utf-8")
    toolchain = find_toolchain(device)
    headers = [f"-I{folder}" for folder in (*runtime_folders(), BENCH)]
    compile_ = [*toolchain.command, *FLAGS, *flags, *headers, "-c"]
    sources = (text, *(runtime_file(f"pe_{part}.c") for part in ("memory", "pool", "threads")))
    objects = [f"{program}-{source.stem}.o" for source in sources]  # programs are built at once
    commands = [
        [*compile_, str(source), "-o", out] for source, out in zip(sources, objects, strict=True)
    ]
    # As artifacts are linked: they share a libc, which zig builds in a minute.
    commands += [[*linker(toolchain.command), *objects, "-o", str(program), *link_flags(device)]]
    for command in commands:
        built = subprocess.run(
            command, capture_output=True, text=True, check=False, env=toolchain.environment
        )
        if built.returncode:
            raise BuildError(f"the benchmark does not compile: {built.stderr[-2000:]}")


def run_bench(command: Sequence[str]) -> str:
    """Run a benchmark on this machine and return its output."""
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeFailure(
            f"the benchmark ended with status {ran.returncode}: {ran.stderr.strip()[-500:]}"
        )
    return ran.stdout


def read_times(printed: str) -> list[tuple[float, float]]:
    """Parse a benchmark's median and best seconds; RuntimeFailure for other output."""
    try:
        lines = (line.split() for line in printed.splitlines())
        return [(float(median), float(best)) for median, best in lines]
    except ValueError as error:
        raise RuntimeFailure(f"the benchmark printed no times: {error}") from error
