"""A net of CMSIS-NN that was timed on an STM32F746, to check the cycle model of a Cortex-M7."""

from pathlib import Path

from pockengine.devices import Device
from pockengine.errors import BuildError
from pockengine.farm.cycles.firmware import model_firmware
from pockengine.farm.cycles.modelled import Modelled
from pockengine.farm.firmware.link import HERE as FIRMWARE
from pockengine.farm.firmware.link import link_files
from pockengine.studies.tinyengine.theirs import CMSIS, INCLUDES, compile_theirs

HERE = Path(__file__).parent
KERNELS = (
    *("Convolution*/arm_convolve_HWC_q7_RGB.c", "Convolution*/arm_convolve_HWC_q7_fast.c"),
    "Convolution*/arm_nn_mat_mult_kernel_q7_q15*.c",
    *("Pooling*/arm_pool_q7_HWC.c", "FullyConnected*/arm_fully_connected_q7_opt.c"),
    *("Activation*/arm_relu_q7.c", "NNSupport*/arm_q7_to_q15*no_shift.c"),
)


def model_cifar(source: Path, device: Device, folder: Path) -> Modelled:
    """Return the modelled time of the net; BuildError if the clone lacks CMSIS-NN's kernels."""
    place = source / CMSIS / "NN" / "Source"
    found = {pattern: sorted(place.glob(pattern)) for pattern in KERNELS}
    missing = [pattern for pattern, files in found.items() if not files]
    if missing:
        raise BuildError(f"{place} has no {missing[0]}; clone tinyengine with its submodules")
    files = [HERE / "cifar.c", *(path for files in found.values() for path in files)]
    includes = [FIRMWARE, *(source / name for name in INCLUDES)]
    objects = [compile_theirs(path, includes, device, folder) for path in files]
    firmware = link_files("CMSIS-NN", device, objects, [], folder)
    return model_firmware(device.name, firmware.path, folder)[-1]
