"""Model the time of a net's inference in TFLite, as recorded in calibration.toml.

Each net takes minutes under emulation, so tests repeat the memory kernels only.
"""

import tempfile
from pathlib import Path

from pockengine.farm.cycles.modelled import Modelled, model_regions
from pockengine.farm.progress import step
from pockengine.farm.references.guest_install import install_guest_python
from pockengine.farm.references.tflite_inference import guest_command
from pockengine.farm.references.worker import run_module

RUNS = 2
"""The first run fills the caches; the last is the figure."""


def model_inference(device: str, net: str) -> Modelled:
    """Return the modelled time of a net of references/detection_nets.py on one thread.

    FarmError if TensorFlow, which writes the file, is missing, or tflite-runtime cannot be
    installed in the guest.
    """
    guest = install_guest_python("tflite")
    with tempfile.TemporaryDirectory(prefix="pockengine-net-") as name:
        with step(f"TensorFlow writes {net} as a file of TFLite"):
            run_module("detection_nets", [net, name])
        command, system = guest_command(guest, Path(name), "f32", RUNS)
        with step(f"model TFLite's inference of {net} on {device}"):
            return model_regions(
                device, command, RUNS, root=system.root, environment=system.environment
            )[-1]
