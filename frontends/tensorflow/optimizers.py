"""Keras's optimizers with Keras's semantics, and the conversion of Keras objects to ours.

They differ from PyTorch's of the same names: epsilon stands elsewhere, momentum carries the rate
along, weight decay is always decoupled. The learning rate itself is an input of each step. One
thing is not followed: where a batch reads a row of an embedding several times, Keras squares each
of its gradients for the second moment, and we their sum, as for every other weight.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pockengine.compiler.ir import Builder, Value
from pockengine.compiler.optim import (
    Adadelta,
    Groups,
    Lamb,
    Lion,
    Muon,
    NAdam,
    Optimizer,
    Scaled,
    Update,
)
from pockengine.compiler.optim.base import Results
from pockengine.compiler.optim.formulas import blend, shrunk
from pockengine.compiler.optim.muon import MATCH_RMS_ADAMW
from pockengine.errors import ImportModelError

RMS_RATE = 0.2
"""Scale of the steps of Keras's Muon and PyTorch's "match_rms_adamw"."""

REFUSED = {
    "clipnorm": "pass clip= to pockengine.compile instead",
    "clipvalue": "pass clip= to pockengine.compile instead",
    "global_clipnorm": "pass clip= to pockengine.compile instead",
    "gradient_accumulation_steps": "pass micro_batches= to pockengine.compile instead",
    "use_ema": "leave the moving average of the weights out",
}


@dataclass(frozen=True)
class KerasSgd:
    """v = m v + lr g;  p -= v, or lr g + m v if nesterov."""

    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def update(self, update: Update) -> None:
        """Append `sgd_update`; with momentum also a velocity."""
        _descend(
            update,
            update.grad,
            self.momentum,
            nesterov=self.nesterov,
            weight_decay=self.weight_decay,
        )


@dataclass(frozen=True)
class KerasAdam:
    """Adam with epsilon beside the uncorrected root: "epsilon hat" in arXiv 1412.6980."""

    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7
    weight_decay: float = 0.0
    amsgrad: bool = False

    def update(self, update: Update) -> None:
        """Append `adam_update`: rate = lr sqrt(1 - b2^t) / (1 - b1^t), and nothing in the root."""
        g = update.g
        first, second = (update.correction(beta) for beta in (self.beta_1, self.beta_2))
        rate = g.mul(update.lr, g.div(g.sqrt(second), first))
        if self.amsgrad:
            self._amsgrad(update, rate)
            return
        update.emit(
            "adam_update",
            update.grad,
            update.lr,
            rate,
            g.scalar(1.0),
            update.state("first"),
            update.state("second"),
            beta1=self.beta_1,
            beta2=self.beta_2,
            eps=self.epsilon,
            weight_decay=self.weight_decay,
            decoupled=True,
        )

    def _amsgrad(self, update: Update, rate: Value) -> None:
        def formula(g: Builder, p: Value, dp: Value, *inputs: Value) -> Results:
            lr, rate, first, second, most = inputs
            first = blend(g, first, dp, self.beta_1)
            second = blend(g, second, g.square(dp), self.beta_2)
            most = g.maximum(most, second)
            step = g.div(g.mul(rate, first), g.add(g.sqrt(most), g.scalar(self.epsilon)))
            return g.sub(shrunk(g, p, lr, self.weight_decay), step), first, second, most

        states = [update.state(name) for name in ("first", "second", "most")]
        update.by_elements(formula, (update.lr, rate), *states)


@dataclass(frozen=True)
class KerasAdamax:
    """Adamax with epsilon beside the largest gradient, not in it (arXiv 1412.6980)."""

    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7
    weight_decay: float = 0.0

    def update(self, update: Update) -> None:
        """u = max(b2 u, |g|);  p -= rate m / (u + eps), with rate = lr / (1 - b1^t)."""

        def formula(g: Builder, p: Value, dp: Value, *inputs: Value) -> Results:
            lr, rate, first, most = inputs
            first = blend(g, first, dp, self.beta_1)
            most = g.maximum(g.mul(most, g.scalar(self.beta_2)), g.abs(dp))
            step = g.div(g.mul(rate, first), g.add(most, g.scalar(self.epsilon)))
            return g.sub(shrunk(g, p, lr, self.weight_decay), step), first, most

        rate = update.g.div(update.lr, update.correction(self.beta_1))
        states = (update.state("first"), update.state("most"))
        update.by_elements(formula, (update.lr, rate), *states)


@dataclass(frozen=True)
class KerasRMSprop:
    """s = rho s + (1 - rho) g^2;  v = m v + lr g / sqrt(s + eps);  p -= v; perhaps centered."""

    rho: float = 0.9
    momentum: float = 0.0
    epsilon: float = 1e-7
    centered: bool = False
    weight_decay: float = 0.0

    def update(self, update: Update) -> None:
        """Append the moments and the step."""
        g, grad = update.g, update.grad
        blend = g.scalar(1 - self.rho)
        variance = update.track("square", g.square(grad), blend)
        if self.centered:
            mean = update.track("average", grad, blend)
            variance = g.sub(variance, g.square(mean))
        direction = g.div(grad, g.sqrt(g.add(variance, g.scalar(self.epsilon))))
        _descend(update, direction, self.momentum, nesterov=False, weight_decay=self.weight_decay)


@dataclass(frozen=True)
class KerasAdagrad:
    """s += g^2;  p -= lr g / sqrt(s + eps), from a sum that is not zero at first."""

    initial_accumulator_value: float = 0.1
    epsilon: float = 1e-7
    weight_decay: float = 0.0

    def update(self, update: Update) -> None:
        """Append the sum of squares and the step."""
        g, grad = update.g, update.grad
        state = update.state("square", start=self.initial_accumulator_value)
        total = g.add(state, g.square(grad))
        g.emit("assign", state, total)
        direction = g.div(grad, g.sqrt(g.add(total, g.scalar(self.epsilon))))
        _descend(update, direction, 0.0, nesterov=False, weight_decay=self.weight_decay)


@dataclass(frozen=True)
class KerasAdafactor:
    """Adafactor (arXiv 1804.04235): a second moment as a row and a column of each matrix."""

    beta_2_decay: float = -0.8
    epsilon_1: float = 1e-30
    epsilon_2: float = 1e-3
    clip_threshold: float = 1.0
    weight_decay: float = 0.0

    def update(self, update: Update) -> None:
        """Append the moments and the step by the clipped, scaled direction."""
        g = update.g
        blend = g.pow(update.step, g.scalar(self.beta_2_decay))
        square = g.add(g.square(update.grad), g.scalar(self.epsilon_1))
        variance = (
            self._factored(update, square, blend)
            if len(square.shape) > 1
            else update.track("square", square, blend)
        )
        direction = g.div(update.grad, g.sqrt(variance))
        excess = g.mul(_rms(update, direction), g.scalar(1 / self.clip_threshold))
        # Keras decays the weights before it measures them.
        decayed = g.sub(g.scalar(1.0), g.mul(update.lr, g.scalar(self.weight_decay)))
        size = g.mul(_rms(update, update.part), decayed)
        rate = g.minimum(update.lr, g.rsqrt(update.step))
        scale = g.mul(g.maximum(g.scalar(self.epsilon_2), size), rate)
        step = g.mul(direction, g.div(scale, g.maximum(g.scalar(1.0), excess)))
        if self.weight_decay:
            step = g.add(step, g.mul(update.part, g.mul(update.lr, g.scalar(self.weight_decay))))
        update.emit("sgd_update", step, g.scalar(1.0))

    def _factored(self, update: Update, square: Value, blend: Value) -> Value:
        """Row means times column means over the mean of the rows."""
        g, rank = update.g, len(square.shape)
        order = update.param.permutation or tuple(range(rank))
        last, other = order.index(rank - 1), order.index(rank - 2)
        rows = update.track("rows", g.reduce_mean(square, axes=(last,), keepdims=True), blend)
        columns = update.track(
            "columns", g.reduce_mean(square, axes=(other,), keepdims=True), blend
        )
        return g.div(g.mul(rows, columns), g.reduce_mean(rows, axes=(other,), keepdims=True))


_ADVICE = {
    "LossScaleOptimizer": "give its inner_optimizer, and the policy mixed_bfloat16 to the model, "
    "whose gradients need no scale",
    "MultiOptimizer": "use pockengine.Groups for that",
}


def to_optimizer(optimizer: Any) -> Optimizer:
    """Return our equivalent of a Keras optimizer.

    Its learning rate is not taken over: the rate is an input of each step. Raises ImportModelError
    for an optimizer, or a setting of it, that there is no equivalent for.
    """
    config = optimizer.get_config()
    name = type(optimizer).__name__
    if name not in _BUILDERS:
        advice = _ADVICE.get(name, f"known are {', '.join(_BUILDERS)}")
        raise ImportModelError(f"Keras's optimizer {name} has no equivalent; {advice}")
    for setting, fix in REFUSED.items():
        if config.get(setting):
            raise ImportModelError(f"{name}({setting}={config[setting]}) is not supported; {fix}")
    if _excludes(optimizer):
        raise ImportModelError(
            f"{name} excludes variables from weight decay; use pockengine.Groups for that"
        )
    return _BUILDERS[name](config)


def _excludes(optimizer: Any) -> bool:
    return any(
        getattr(optimizer, name, None)
        for name in ("_exclude_from_weight_decay", "_exclude_from_weight_decay_pattern")
    )


def _decay(config: dict[str, Any]) -> float:
    return float(config.get("weight_decay") or 0.0)


def _adam(config: dict[str, Any]) -> Optimizer:
    names = ("beta_1", "beta_2", "epsilon")
    settings = {name: config[name] for name in names}
    return KerasAdam(**settings, weight_decay=_decay(config), amsgrad=bool(config["amsgrad"]))


def _adadelta(config: dict[str, Any]) -> Optimizer:
    return Adadelta(config["rho"], config["epsilon"], _decay(config), decoupled_weight_decay=True)


def _adamax(config: dict[str, Any]) -> Optimizer:
    return KerasAdamax(config["beta_1"], config["beta_2"], config["epsilon"], _decay(config))


def _nadam(config: dict[str, Any]) -> Optimizer:
    betas = config["beta_1"], config["beta_2"]
    return NAdam(betas, config["epsilon"], _decay(config), 1.0, decoupled_weight_decay=True)


def _lamb(config: dict[str, Any]) -> Optimizer:
    betas = config["beta_1"], config["beta_2"]
    return Lamb(betas, config["epsilon"], _decay(config), decoupled_weight_decay=True)


def _muon(config: dict[str, Any]) -> Optimizer:
    """Momentum that sums instead of averaging, as in PyTorch, has the same direction."""
    if config["rms_rate"] != RMS_RATE:
        raise ImportModelError(
            f"Muon(rms_rate={config['rms_rate']}) is not supported; leave it at {RMS_RATE}"
        )
    names = config["exclude_layers"]
    if any(re.escape(name) != name for name in names):
        raise ImportModelError(f"Muon(exclude_layers={names}): give names, not expressions")
    first, second, decay = (config[f"adam_{name}"] for name in ("beta_1", "beta_2", "weight_decay"))
    ratio = float(config["adam_lr_ratio"])
    # The decay of parameters trained by Adam uses the rate itself.
    own = KerasAdam(first, second, config["epsilon"], float(decay or 0.0) / ratio)
    others = own if ratio == 1 else Scaled(own, ratio)
    muon = Muon(
        _decay(config),
        config["momentum"],
        config["nesterov"],
        (config["muon_a"], config["muon_b"], config["muon_c"]),
        ns_steps=config["ns_steps"],
        adjust_lr_fn=MATCH_RMS_ADAMW,
        others=others,
    )
    embeddings = ("[eE]mbedding",) if config["exclude_embeddings"] else ()
    return Groups(muon, tuple((f"*{name}*", others) for name in (*embeddings, *names)))


def _adafactor(config: dict[str, Any]) -> Optimizer:
    fields = ("beta_2_decay", "epsilon_1", "epsilon_2", "clip_threshold")
    return KerasAdafactor(**{name: config[name] for name in fields}, weight_decay=_decay(config))


def _adagrad(config: dict[str, Any]) -> Optimizer:
    return KerasAdagrad(config["initial_accumulator_value"], config["epsilon"], _decay(config))


def _lion(config: dict[str, Any]) -> Optimizer:
    return Lion((config["beta_1"], config["beta_2"]), _decay(config))


def _rmsprop(config: dict[str, Any]) -> Optimizer:
    fields = ("rho", "momentum", "epsilon", "centered")
    return KerasRMSprop(**{name: config[name] for name in fields}, weight_decay=_decay(config))


def _sgd(config: dict[str, Any]) -> Optimizer:
    return KerasSgd(config["momentum"], config["nesterov"], _decay(config))


_BUILDERS: dict[str, Callable[[dict[str, Any]], Optimizer]] = {
    "Adadelta": _adadelta,
    "Adafactor": _adafactor,
    "Adagrad": _adagrad,
    "Adam": _adam,
    "AdamW": _adam,
    "Adamax": _adamax,
    "Lamb": _lamb,
    "Lion": _lion,
    "Muon": _muon,
    "Nadam": _nadam,
    "RMSprop": _rmsprop,
    "SGD": _sgd,
}


def _descend(
    update: Update, direction: Value, momentum: float, nesterov: bool, weight_decay: float
) -> None:
    """Step along a direction, with momentum that carries the rate, and decoupled decay."""
    g = update.g
    if not momentum:
        update.emit("sgd_update", direction, update.lr, weight_decay=weight_decay)
        return
    step, velocity = g.mul(direction, update.lr), update.state("velocity")
    if not weight_decay:
        settings = {"momentum": momentum, "nesterov": nesterov}
        update.emit("sgd_update", step, g.scalar(1.0), velocity, **settings)
        return
    moved = g.add(g.mul(velocity, g.scalar(momentum)), step)
    g.emit("assign", velocity, moved)
    whole = g.add(step, g.mul(moved, g.scalar(momentum))) if nesterov else moved
    decay = g.mul(update.part, g.mul(update.lr, g.scalar(weight_decay)))
    update.emit("sgd_update", g.add(whole, decay), g.scalar(1.0))


def _rms(update: Update, value: Value) -> Value:
    """Root mean square of all elements."""
    g, axes = update.g, tuple(range(len(value.shape)))
    square = g.square(value)
    return g.sqrt(g.reduce_mean(square, axes=axes) if axes else square)
