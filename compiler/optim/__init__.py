"""Optimisers as compile-time graphs: data that knows which nodes update a parameter."""

from pockengine.compiler.optim.adafactor import Adafactor
from pockengine.compiler.optim.base import STATE_PREFIX, Optimizer, Update
from pockengine.compiler.optim.basic import Adagrad, Adam, AdamW, Lion, RMSprop, Sgd
from pockengine.compiler.optim.groups import Groups, Scaled

__all__ = [
    "NAMED",
    "STATE_PREFIX",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Groups",
    "Lion",
    "Optimizer",
    "RMSprop",
    "Scaled",
    "Sgd",
    "Update",
]

NAMED: dict[str, type] = {
    kind.__name__.lower(): kind for kind in (Adafactor, Adagrad, Adam, AdamW, Lion, RMSprop, Sgd)
}
"""The optimisers by name, with their defaults."""
