"""PockEngine: compile a model's whole training step ahead of time, for the device it runs on."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pockengine.api import compile as compile
    from pockengine.api import compile_step as compile_step
    from pockengine.backends.augmentation import Augmentation as Augmentation
    from pockengine.backends.rate_schedule import RateSchedule as RateSchedule
    from pockengine.backends.training.callbacks import Callback as Callback
    from pockengine.backends.training.checkpoints import Checkpoints as Checkpoints
    from pockengine.backends.training.duty import DutyCycle as DutyCycle
    from pockengine.backends.training.early_stopping import EarlyStopping as EarlyStopping
    from pockengine.backends.training.metrics import Metric as Metric
    from pockengine.backends.training.options import FitOptions as FitOptions
    from pockengine.backends.training.pictures import Pictures as Pictures
    from pockengine.backends.training.reports import CsvLog as CsvLog
    from pockengine.backends.training.reports import MlflowLog as MlflowLog
    from pockengine.backends.training.reports import TensorBoardLog as TensorBoardLog
    from pockengine.backends.training.reports import TrackioLog as TrackioLog
    from pockengine.compiled import Compiled as Compiled
    from pockengine.compiler.optim import Adadelta as Adadelta
    from pockengine.compiler.optim import Adafactor as Adafactor
    from pockengine.compiler.optim import Adagrad as Adagrad
    from pockengine.compiler.optim import Adam as Adam
    from pockengine.compiler.optim import Adamax as Adamax
    from pockengine.compiler.optim import AdamW as AdamW
    from pockengine.compiler.optim import Asgd as Asgd
    from pockengine.compiler.optim import Groups as Groups
    from pockengine.compiler.optim import Lamb as Lamb
    from pockengine.compiler.optim import Lars as Lars
    from pockengine.compiler.optim import Lion as Lion
    from pockengine.compiler.optim import Maximize as Maximize
    from pockengine.compiler.optim import Muon as Muon
    from pockengine.compiler.optim import NAdam as NAdam
    from pockengine.compiler.optim import RAdam as RAdam
    from pockengine.compiler.optim import RMSprop as RMSprop
    from pockengine.compiler.optim import Rprop as Rprop
    from pockengine.compiler.optim import Sgd as Sgd
    from pockengine.compiler.optim import SparseAdam as SparseAdam
    from pockengine.compiler.passes.backward.differentiate import Clip as Clip
    from pockengine.compiler.quantize.int8 import Int8 as Int8
    from pockengine.compiler.sizes import Range as Range
    from pockengine.compiler.sparse.lora import lora as lora
    from pockengine.compiler.storage import Storage as Storage
    from pockengine.errors import PockEngineError as PockEngineError
    from pockengine.frontends.jax import from_jax as from_jax
    from pockengine.frontends.onnx.model import from_onnx as from_onnx
    from pockengine.frontends.tensorflow import from_tensorflow as from_tensorflow
    from pockengine.frontends.torch.model import from_torch as from_torch
    from pockengine.loaded import load as load
    from pockengine.options import CompileOptions as CompileOptions

__version__ = "0.1.0"

_OPTIMIZERS = (
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Asgd",
    "Groups",
    "Lamb",
    "Lars",
    "Lion",
    "Maximize",
    "Muon",
    "NAdam",
    "RAdam",
    "RMSprop",
    "Rprop",
    "Sgd",
    "SparseAdam",
)
_PLACES = {
    "Callback": "pockengine.backends.training.callbacks",
    "Checkpoints": "pockengine.backends.training.checkpoints",
    "DutyCycle": "pockengine.backends.training.duty",
    "EarlyStopping": "pockengine.backends.training.early_stopping",
    "Metric": "pockengine.backends.training.metrics",
    "Pictures": "pockengine.backends.training.pictures",
    **dict.fromkeys(
        ("CsvLog", "MlflowLog", "TensorBoardLog", "TrackioLog"),
        "pockengine.backends.training.reports",
    ),
    "Compiled": "pockengine.compiled",
    "CompileOptions": "pockengine.options",
    "FitOptions": "pockengine.backends.training.options",
    "compile": "pockengine.api",
    "compile_step": "pockengine.api",
    "Clip": "pockengine.compiler.passes.backward.differentiate",
    "PockEngineError": "pockengine.errors",
    "Int8": "pockengine.compiler.quantize.int8",
    "Augmentation": "pockengine.backends.augmentation",
    "Range": "pockengine.compiler.sizes",
    "Storage": "pockengine.compiler.storage",
    "RateSchedule": "pockengine.backends.rate_schedule",
    "from_jax": "pockengine.frontends.jax",
    "from_onnx": "pockengine.frontends.onnx.model",
    "from_tensorflow": "pockengine.frontends.tensorflow",
    "from_torch": "pockengine.frontends.torch.model",
    "load": "pockengine.loaded",
    "lora": "pockengine.compiler.sparse.lora",
    **dict.fromkeys(_OPTIMIZERS, "pockengine.compiler.optim"),
}


def __getattr__(name: str) -> Any:
    """Import the public names when they are used: `import pockengine` alone stays light."""
    if name not in _PLACES:
        raise AttributeError(f"module 'pockengine' has no attribute {name!r}")
    from pockengine.boundary import public

    return public(getattr(import_module(_PLACES[name]), name))


def __dir__() -> list[str]:
    """Offer the public names to interactive users."""
    return sorted([*globals(), *_PLACES])
