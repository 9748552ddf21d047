"""Optimizers as data: each builds the nodes that update a parameter."""

from pockengine.compiler.optim.adafactor import Adafactor
from pockengine.compiler.optim.adaptive import Adadelta, Adamax, Asgd, NAdam, RAdam, Rprop
from pockengine.compiler.optim.base import STATE_PREFIX, Optimizer, Update
from pockengine.compiler.optim.basic import Adagrad, Adam, AdamW, Lion, RMSprop, Sgd
from pockengine.compiler.optim.groups import Groups, LoraPlus, Maximize, Scaled
from pockengine.compiler.optim.layerwise import Lamb, Lars
from pockengine.compiler.optim.muon import Muon
from pockengine.compiler.optim.rows import SparseAdam

_KINDS = (
    Adadelta,
    Adafactor,
    Adagrad,
    Adam,
    AdamW,
    Adamax,
    Asgd,
    Lamb,
    Lars,
    Lion,
    Muon,
    NAdam,
    RAdam,
    RMSprop,
    Rprop,
    Sgd,
    SparseAdam,
)

NAMED: dict[str, type] = {kind.__name__.lower(): kind for kind in _KINDS}
"""Optimizer classes by lower-case name."""

__all__ = [
    "NAMED",
    "STATE_PREFIX",
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
    "LoraPlus",
    "Maximize",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "Scaled",
    "Sgd",
    "SparseAdam",
    "Update",
]
