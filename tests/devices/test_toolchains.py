"""Each device's toolchain builds a binary of the right kind; runnable binaries run."""

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent

ELF_MAGIC = b"\x7fELF"
ELF_X86_64, ELF_AARCH64, ELF_HEXAGON = 62, 183, 164
PROGRAM_INTERPRETER = 3
MACHO_64_MAGIC, MACHO_ARM64, MACHO_EXECUTE = 0xFEEDFACF, 0x0100000C, 2


def elf_machine(data: bytes) -> int:
    assert data[:4] == ELF_MAGIC
    return struct.unpack_from("<H", data, 18)[0]


def elf_program_types(data: bytes) -> set[int]:
    (table,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    return {struct.unpack_from("<I", data, table + i * size)[0] for i in range(count)}


def run_selftest(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    checkpoint = folder / "selftest.safetensors"
    return subprocess.run(
        [*command, str(checkpoint)], check=False, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("device", ["rpi4", "rpi5", "jetson-orin"])
def test_linux_board_binary_is_a_static_aarch64_elf(device: str) -> None:
    data = (HERE / f"selftest_{device}").read_bytes()

    assert elf_machine(data) == ELF_AARCH64
    assert PROGRAM_INTERPRETER not in elf_program_types(data)


def test_apple_m1_binary_is_an_arm64_macho() -> None:
    data = (HERE / "selftest_apple-m1").read_bytes()

    magic, cpu, _, kind = struct.unpack_from("<IIII", data)
    assert (magic, cpu, kind) == (MACHO_64_MAGIC, MACHO_ARM64, MACHO_EXECUTE)


@pytest.mark.parametrize("name", ["selftest", "selftest_host"])
def test_host_binary_runs(name: str, tmp_path: Path) -> None:
    result = run_selftest([str(HERE / name)], tmp_path)

    assert (result.returncode, result.stdout) == (0, "ok\n"), result.stderr


def test_dsp_binary_is_a_hexagon_elf_and_runs_emulated(tmp_path: Path) -> None:
    binary = HERE / "selftest_snapdragon-dsp"
    assert elf_machine(binary.read_bytes()) == ELF_HEXAGON
    if shutil.which("qemu-hexagon") is None:
        pytest.skip("qemu-hexagon is not installed (apt-get install qemu-user)")

    result = run_selftest(["qemu-hexagon", "-cpu", "v67", str(binary)], tmp_path)

    assert (result.returncode, result.stdout) == (0, "ok\n"), result.stderr


@pytest.mark.parametrize(
    ("device", "cpu"),
    [("rpi4", "cortex-a72"), ("rpi5", "cortex-a76"), ("jetson-orin", "cortex-a76")],
)
def test_board_binary_runs_emulated(device: str, cpu: str, tmp_path: Path) -> None:
    if shutil.which("qemu-aarch64") is None:
        pytest.skip("qemu-aarch64 is not installed (apt-get install qemu-user)")

    result = run_selftest(["qemu-aarch64", "-cpu", cpu, str(HERE / f"selftest_{device}")], tmp_path)

    assert (result.returncode, result.stdout) == (0, "ok\n"), result.stderr
