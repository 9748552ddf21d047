"""A PyTorch module trained with TVM's own gradients, trainer, loss and optimizer."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import tvm
from torch import nn
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program
from tvm.relax.training import SetupTrainer, Trainer
from tvm.relax.training.loss import CrossEntropyLoss
from tvm.relax.training.optimizer import SGD

from pockengine.backends.tvm.library import compiled, target_of
from pockengine.devices import load_device
from pockengine.errors import CompileError

BACKBONE = "backbone"


class OwnTraining:
    """SGD steps in TVM; with `scheduled` its kernels have our schedules."""

    def __init__(
        self, module: nn.Module, x: np.ndarray, classes: int, rate: float, *, scheduled: bool
    ) -> None:
        backbone, params = _backbone(module, torch.from_numpy(x))
        types = (
            relax.TensorType((len(x), classes), "float32"),
            relax.TensorType((len(x),), "int64"),
        )
        setup = SetupTrainer(CrossEntropyLoss(reduction="mean"), SGD(rate), types, legalize=False)
        try:
            training = setup(backbone)
        except Exception as error:  # TVM's errors have no common base
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            words = lines[-1] if lines else type(error).__name__
            raise CompileError(f"TVM {tvm.__version__} derives no gradient: {words}") from error
        machine = relax.VirtualMachine(_built(training, scheduled), tvm.cpu())
        self._trainer = Trainer(training, machine, tvm.cpu())
        self._trainer.load_params(list(params))

    def step(self, x: np.ndarray, labels: np.ndarray) -> float:
        """Train on a batch; return its loss."""
        batch = [tvm.runtime.tensor(x)], [tvm.runtime.tensor(labels)]
        return float(self._trainer.update(*batch).numpy())


def _built(training: tvm.IRModule, scheduled: bool) -> Any:
    host = load_device("host")
    if scheduled:
        return compiled(training, host)
    return tvm.compile(relax.transform.LegalizeOps()(training), target_of(host))


def _backbone(module: nn.Module, x: torch.Tensor) -> tuple[tvm.IRModule, Sequence[Any]]:
    """Return a module in the form for SetupTrainer, and its params in order."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's own deprecations
        exported = torch.export.export(module, (x,))
        whole = from_exported_program(
            exported, keep_params_as_input=True, unwrap_unit_return_tuple=True
        )
    whole, params = relax.frontend.detach_params(whole)
    main = whole["main"].with_attr("global_symbol", BACKBONE)
    attrs = {"param_num": len(params["main"]), "state_num": 0}
    return tvm.IRModule({BACKBONE: main}).with_attrs(attrs), params["main"]
