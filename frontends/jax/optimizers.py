"""optax's transformations as optimizers.

A transformation of optax is two closures, identified by their names and captured values. To guard
against changes in optax, some steps with random gradients are computed by optax and by our
formulas, and must agree.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from pockengine.compiler.ir import F32, Builder, Graph, TensorType
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.optim import Optimizer, Update
from pockengine.errors import ImportModelError
from pockengine.frontends.jax.optax_chain import Link, OptaxChain
from pockengine.frontends.jax.optax_links import (
    AdadeltaLink,
    AdamaxLink,
    AdamLink,
    Belief,
    Decay,
    Limit,
    LionLink,
    Rate,
    Rms,
    Rss,
    Scale,
    SignLink,
    Trace,
    TrustRatio,
    Yogi,
)

STEPS = 12
TOLERANCE = 1e-4
"""Tolerance relative to a step's size; another order of f32 operations differs by a few 1e-6."""

ANY_STEP = "write the whole step and give it to pockengine.compile_step, which takes any"


@dataclass(frozen=True)
class _Part:
    """A transformation that is not a chain: the function that created it, and its settings."""

    name: str
    settings: Mapping[str, Any]

    def __str__(self) -> str:
        return f"optax.{self.name}"


@dataclass(frozen=True)
class _Row:
    """How settings become a link: those it takes, and the required values of all others."""

    kind: Callable[..., Link]
    takes: str
    fixed: Mapping[str, Any]


_MOMENTS = "b1 b2 eps eps_root"
_ROWS = {
    "add_decayed_weights": _Row(Decay, "weight_decay", {}),
    "clip": _Row(Limit, "max_delta", {}),
    "scale": _Row(Scale, "step_size", {}),
    "scale_by_adadelta": _Row(AdadeltaLink, "rho eps", {}),
    "scale_by_adam": _Row(AdamLink, f"{_MOMENTS} nesterov", {"mu_dtype": None}),
    "scale_by_adamax": _Row(AdamaxLink, "b1 b2 eps", {}),
    "scale_by_amsgrad": _Row(
        lambda **settings: AdamLink(**settings, most=True),
        _MOMENTS,
        {"bias_correction_mu": True, "bias_correction_nu": True, "mu_dtype": None},
    ),
    "scale_by_belief": _Row(Belief, _MOMENTS, {"nesterov": False}),
    "scale_by_lion": _Row(
        LionLink, "b1 b2", {"mode": "hard", "mu_dtype": None, "smooth_beta": 1.0}
    ),
    "scale_by_rms": _Row(Rms, "decay eps eps_in_sqrt initial_scale", {"bias_correction": False}),
    "scale_by_rss": _Row(Rss, "eps initial_accumulator_value", {}),
    "scale_by_sign": _Row(SignLink, "", {}),
    "scale_by_stddev": _Row(
        lambda **settings: Rms(**settings, centered=True),
        "decay eps eps_in_sqrt initial_scale",
        {"bias_correction": False},
    ),
    "scale_by_trust_ratio": _Row(TrustRatio, "trust_coefficient eps", {"min_norm": 0.0}),
    "scale_by_yogi": _Row(Yogi, f"{_MOMENTS} initial_accumulator_value", {}),
    "trace": _Row(Trace, "decay nesterov", {"accumulator_dtype": None}),
}

_NO = object()
"""The value of a setting that is not set."""

_ADVICE = {
    "MultiSteps": "pass micro_batches= to pockengine.compile instead",
    "clip_by_global_norm": "pass clip=pockengine.Clip(norm=...) to pockengine.compile instead",
    "inject_hyperparams": "the rate is an input of each step: give the transformation itself",
    "masked": "choose by name: pockengine.Groups(...), or a scheme",
    "partition": "choose by name: pockengine.Groups(...), or a scheme",
    "scale_by_factored_rms": "give pockengine.Adafactor()",
    "scale_by_radam": "give pockengine.RAdam(), which rectifies from the paper's step on; optax's "
    "arithmetic may be a step off",
    "scale_by_rprop": "give pockengine.Rprop()",
    "scale_by_schedule": "the rate is an input of each step: give the transformation a number, and "
    "the schedule to the training, fit(..., lr=lambda n: float(schedule(n - 1)))",
}


def is_optax(optimizer: Any) -> bool:
    """Whether it is a transformation of optax."""
    return callable(getattr(optimizer, "init", None)) and callable(
        getattr(optimizer, "update", None)
    )


def to_optimizer(transformation: Any) -> Optimizer:
    """Return our equivalent optimizer; ImportModelError explains why there is none."""
    parts = _parts(transformation)
    for part in parts:
        if part.name not in _ROWS:
            raise _refused([part], "has no equivalent")
    rates = [
        place
        for place, part in enumerate(parts)
        if part.name == "scale" and _number(part.settings["step_size"]) < 0
    ]
    if not rates:
        raise _refused(parts, "has no learning rate above 0")
    rate = -float(parts[rates[-1]].settings["step_size"])
    links: list[Link] = [
        Rate() if place == rates[-1] else _link(part) for place, part in enumerate(parts)
    ]
    optimizer = OptaxChain(tuple(links))
    if not _agree(transformation, optimizer, rate):
        raise _refused(parts, "makes other steps than its settings say")
    return optimizer


def _number(value: Any) -> float:
    """A setting's number; 0 if it is not a number."""
    return float(value) if isinstance(value, Real) else 0.0


def _parts(transformation: Any) -> list[_Part]:
    """Split a transformation into links; ImportModelError names functions that are not optax's."""
    update = transformation.update
    if not inspect.isfunction(update) or not update.__module__.startswith("optax."):
        kind = type(transformation).__name__
        name = getattr(update, "__qualname__", kind).partition(".")[0]
        advice = _ADVICE.get(name, ANY_STEP)
        raise ImportModelError(f"{name} is no transformation of optax by itself; {advice}")
    name = update.__qualname__.partition(".")[0]
    settings = dict(inspect.getclosurevars(update).nonlocals)
    if name == "chain":
        links = [_Function(each) for each in settings["update_fns"]]
        return [part for link in links for part in _parts(link)]
    if name == "with_extra_args_support":
        return _parts(settings["tx"])
    if name == "identity":
        return []
    if name == "masked" and settings.get("mask") is True:
        return _parts(settings["inner"])
    if inspect.isfunction(getattr(transformation, "init", None)):
        settings |= inspect.getclosurevars(transformation.init).nonlocals
    return [_Part(name, settings)]


@dataclass(frozen=True)
class _Function:
    """A link of a chain, which keeps its functions apart."""

    update: Callable[..., Any]


def _link(part: _Part) -> Link:
    row = _ROWS[part.name]
    names = row.takes.split()
    fits = {
        name: isinstance(value, bool | Real) if name in names else row.fixed.get(name, _NO) == value
        for name, value in part.settings.items()
    }
    wrong = [f"{name}={part.settings[name]!r}" for name, fit in fits.items() if not fit]
    wrong += [f"no {name}" for name in names if name not in fits]
    if wrong:
        raise _refused([part], f"has no equivalent with {', '.join(wrong)}")
    settings = {name: part.settings[name] for name in names}
    return row.kind(**{n: v if isinstance(v, bool) else float(v) for n, v in settings.items()})


def _refused(parts: Sequence[_Part], fact: str) -> ImportModelError:
    names = ", ".join(map(str, parts)) or "optax.identity"
    advice = next((_ADVICE[part.name] for part in parts if part.name in _ADVICE), ANY_STEP)
    return ImportModelError(f"{names} {fact}; {advice}")


def _agree(transformation: Any, optimizer: Optimizer, rate: float) -> bool:
    """Run some steps of both, on params of which half are 0, where a step loses no digits."""
    rng = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {"w": (5, 4), "b": (6,), "s": (1,)}
    graph = _updates(optimizer, shapes)
    contents = {name: np.array(param.data) for name, param in graph.params.items()}
    state = transformation.init({name: contents[name].copy() for name in shapes})
    for step in range(1, STEPS + 1):
        params = {n: _drawn(rng, s) * (_drawn(rng, s) > 0) for n, s in shapes.items()}
        grads = {
            n: _drawn(rng, s) * np.float32(10 ** rng.uniform(-3, 1)) for n, s in shapes.items()
        }
        theirs, state = transformation.update(grads, state, params)
        contents |= {name: array.copy() for name, array in params.items()}
        scalars = {"lr": np.asarray(rate, np.float32), "step": np.asarray(step, np.int32)}
        inputs = {f"d{name}": grad for name, grad in grads.items()} | scalars
        run(graph, {value.name: inputs[value.name] for value in graph.inputs}, contents)
        for name, param in params.items():
            expected = np.asarray(theirs[name], np.float64)
            moved = contents[name].astype(np.float64) - param
            size = np.abs(expected)
            allowed = TOLERANCE * size + 1e-6 * size.max() + 3e-7 * np.abs(param)
            if not np.all(np.abs(moved - expected) <= allowed):
                return False
    return True


def _updates(optimizer: Optimizer, shapes: Mapping[str, tuple[int, ...]]) -> Graph:
    """Return a graph of the updates of params by gradients that are its inputs."""
    graph = Graph("steps")
    g = Builder(graph)
    for name, shape in shapes.items():
        g.param(name, np.zeros(shape, np.float32))
        grad = g.input(f"d{name}", TensorType(F32, shape))
        optimizer.update(Update(g, graph.params[name], grad))
    return graph


def _drawn(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.asarray(rng.standard_normal(shape), np.float32)
