"""TinyEngine's generated code and kernels, built as a firmware from a clone."""

import subprocess
import zipfile
from pathlib import Path

from pockengine.backends.native.toolchain import find_toolchain
from pockengine.devices import Device
from pockengine.errors import BuildError
from pockengine.farm.firmware.link import Firmware, link_files

HERE = Path(__file__).parent

GENERATED = Path("tests/examples/assets/tiny_training/codegen.zip")
KERNELS = ("fp_requantize_op/*.c", "fp_backward_op/*.c")
FORWARD = ("avgpooling", "arm_nn_mat_mult_kernel3_input3_s8_s16")
"""Files of int_forward_op that the generated code calls."""

CMSIS = "TinyEngine/third_party/CMSIS/CMSIS"
INCLUDES = (
    "TinyEngine/include",
    *(f"{CMSIS}/{part}/Include" for part in ("NN", "DSP", "Core")),
)
FLAGS = (
    *("-std=gnu11", "-O3", "-ffast-math", "-g0", "-w", "-Wno-incompatible-pointer-types"),
    *("-Wno-implicit-function-declaration", "-Wno-int-conversion"),
    *("-ffunction-sections", "-fdata-sections", "-fno-pic", "-fno-stack-protector"),
    *("-fno-unwind-tables", "-fno-asynchronous-unwind-tables", "-fomit-frame-pointer"),
    *("-DARM_MATH_CM7", "-DARM_MATH_DSP"),
)
HEADERS = "thumb-linux-musleabihf"
"""The target whose C library headers their sources use; they call none of its functions."""


def build_theirs(source: Path, device: Device, folder: Path) -> Firmware:
    """Compile their generated code and kernels; BuildError names files missing from the clone."""
    missing = [name for name in (str(GENERATED), *INCLUDES) if not (source / name).exists()]
    if missing:
        raise BuildError(f"{source} has no {missing[0]}; clone tinyengine with its submodules")
    with zipfile.ZipFile(source / GENERATED) as archive:
        archive.extractall(folder)
    kernels = source / "TinyEngine" / "src" / "kernels"
    files = [path for pattern in KERNELS for path in sorted(kernels.glob(pattern))]
    files += [kernels / "int_forward_op" / f"{name}.c" for name in FORWARD]
    files += sorted((folder / "codegen" / "Source").glob("*.c"))
    includes = [folder / "codegen" / "Include", *(source / name for name in INCLUDES)]
    objects = [compile_theirs(path, includes, device, folder) for path in files]
    return link_files("TinyEngine", device, [HERE / "step.c", *objects], [], folder)


def compile_theirs(source: Path, includes: list[Path], device: Device, folder: Path) -> Path:
    """Compile one of their files for a device's core and return the object."""
    toolchain, out = find_toolchain(device), folder / f"{source.stem}.o"
    command = [HEADERS if part == device.toolchain.target else part for part in toolchain.command]
    command += [*FLAGS, *(f"-I{place}" for place in includes), "-c", str(source), "-o", str(out)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=toolchain.environment, check=False
    )
    if done.returncode:
        raise BuildError(f"{source.name} does not build:\n{done.stderr[:2000]}")
    return out
