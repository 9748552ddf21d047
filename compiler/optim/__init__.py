"""Optimisers as compile-time graphs: data that knows which nodes update a parameter."""

from pockengine.compiler.optim.adafactor import Adafactor
from pockengine.compiler.optim.base import STATE_PREFIX, Optimizer, Update
from pockengine.compiler.optim.basic import Adagrad, Adam, AdamW, Lion, RMSprop, Sgd
from pockengine.compiler.optim.groups import Groups

__all__ = [
    "STATE_PREFIX",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Groups",
    "Lion",
    "Optimizer",
    "RMSprop",
    "Sgd",
    "Update",
]
