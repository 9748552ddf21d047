"""Sums of a product stay in the registers of AArch64: its inner loops do not touch the stack."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pockengine.backends.c.backend import CBackend
from pockengine.backends.native.build import FLAGS
from pockengine.backends.native.runtime_files import runtime_folders
from pockengine.backends.native.toolchain import find_toolchain
from pockengine.compiler.ir import Node
from pockengine.devices.schema import load_device
from pockengine.tests.backends.c.problems import convolution, matmul

MANY = 40
"""Multiply-adds of an inner loop of a product; those of transforms and tails have fewer."""

PRODUCTS = {
    "complete": matmul(197, 768, 192),
    "unfinished": matmul(197, 192, 768, (False, True)),
    "tall": matmul(64, 256, 3136, (True, False)),
    "wide": matmul(512, 128, 784, (True, False)),
    "windows": convolution((1, 28, 28, 64), (3, 3, 64, 96), stride=(2, 2))["forward"],
}


def _loops(assembly: str) -> Iterator[list[str]]:
    """Yield the instructions of each innermost loop: from a label to the branch back to it."""
    lines = [line.partition("//")[0].strip() for line in assembly.splitlines()]
    labels = {line[:-1]: at for at, line in enumerate(lines) if line.endswith(":")}
    ends = dict[int, int]()
    for at, line in enumerate(lines):
        jump = re.match(r"(?:b\.?\w*|cbn?z|tbn?z)\s+(?:\w+, )*(\.L\w+)$", line)
        start = labels.get(jump[1], at) if jump else at
        if start < at:
            ends[start] = at
    for start, end in ends.items():
        if not any(start < other <= last <= end for other, last in ends.items()):
            yield lines[start:end]


def _assembly(node: Node, device: str, folder: Path) -> str:
    toolchain = find_toolchain(load_device(device))
    kernel = CBackend(load_device(device)).kernel(node)
    source, assembly = folder / "kernel.c", folder / "kernel.s"
    source.write_text(f'#include "pe_pool.h"\n#include "pe_math.h"\n{kernel.source}')
    includes = [f"-I{folder}" for folder in runtime_folders()]
    command = [*toolchain.command, *FLAGS, *includes, "-S", "-o", str(assembly), str(source)]
    subprocess.run(command, env=toolchain.environment, check=True)
    return assembly.read_text()


@pytest.mark.parametrize("device", ["rpi4", "rpi5"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_inner_loops_spill_no_sums(name: str, device: str, tmp_path: Path) -> None:
    loops = list(_loops(_assembly(PRODUCTS[name], device, tmp_path)))
    products = [loop for loop in loops if sum("fmla" in line for line in loop) > MANY]
    assert products
    for loop in products:
        assert not [line for line in loop if "[sp" in line], name


def test_a_load_also_advances_its_pointer(tmp_path: Path) -> None:
    loops = list(_loops(_assembly(PRODUCTS["complete"], "rpi4", tmp_path)))
    products = [loop for loop in loops if sum("fmla" in line for line in loop) > MANY]
    for loop in products:
        moves = [line for line in loop if re.match(r"(add|sub|mov)\s", line)]
        assert len(moves) <= 1, moves  # the counter
