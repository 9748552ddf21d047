"""ONNX Runtime's QNN plugin and through it the HTP: this machine's, or its simulator."""

import re
import types
from typing import Any

from pockengine.errors import MissingPackage, RuntimeFailure
from pockengine.extras import need, pip_command

EXTRA = "qnn"
OLDEST = (2, 7)
"""The release of onnxruntime-qnn that was tested."""
NAME = "QNNExecutionProvider"
SIMULATED = "43"
"""QNN's number of the Snapdragon 8 Gen 2, which the simulator emulates. Its default is a chip
without floats, for which the compiler reports that it has no memory.
"""


class HtpProvider:
    """Runs the supported nodes of a model on the HTP, and the others with the runtime's own
    kernels.
    """

    def __init__(self) -> None:
        self._plugin = _import_plugin()

    def add_to(self, runtime: Any, options: Any) -> None:
        """Register the plugin once, and select its device; RuntimeFailure if there is none."""
        if not _devices(runtime):
            runtime.register_execution_provider_library(NAME, self._plugin.get_library_path())
        devices = _devices(runtime)
        own = [each for each in devices if each.device.type == runtime.OrtHardwareDeviceType.NPU]
        if not devices:
            raise RuntimeFailure(
                f"onnxruntime-qnn {self._plugin.__version__} offers no device here; it has the HTP "
                "of a Snapdragon, and its simulator on x86-64"
            )
        chip = {} if own else {"soc_model": SIMULATED}
        path = {"backend_path": self._plugin.get_qnn_htp_path()}
        options.add_provider_for_devices([*own, *devices][:1], {**path, **chip})


def _devices(runtime: Any) -> list[Any]:
    return [each for each in runtime.get_ep_devices() if each.ep_name == NAME]


def _import_plugin() -> types.ModuleType:
    """Import onnxruntime_qnn; MissingPackage if it is missing or too old."""
    what = "a session of the backend qnn"
    need(what, EXTRA)
    import onnxruntime_qnn

    if tuple(map(int, re.findall(r"\d+", onnxruntime_qnn.__version__)[:2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise MissingPackage(
            f"{what} needs onnxruntime-qnn {oldest} or newer, not {onnxruntime_qnn.__version__}: "
            f"{pip_command(EXTRA)} --upgrade"
        )
    module: types.ModuleType = onnxruntime_qnn
    return module
