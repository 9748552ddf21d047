"""A plain JAX training step: value_and_grad under jit, cross entropy, SGD with PyTorch's meaning.

Pictures are NHWC, weights HWIO and [in, out], as XLA likes them on a CPU. The buffers of a step are
donated, so that weights are updated in place.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from pockengine.errors import FarmError
from pockengine.farm.references.job import JobData, Tensors, TrainingJob
from pockengine.farm.references.layouts import from_channels_last, to_channels_last
from pockengine.farm.references.nets import BATCH_NORM_EPS, convolutional_net
from pockengine.farm.references.nets import FAMILIES as CONVOLUTIONAL
from pockengine.farm.references.transformer_nets import Arrays, transformer
from pockengine.models.registry import parse_model

STATISTICS = (".running_mean", ".running_var")
OLD_SHARE = 0.9  # of the old running statistic at each step
Params = dict[str, jax.Array]


class JaxLayers:
    """Layers over parameters by name; remembers the statistics that a training step updates."""

    def __init__(self, params: Params, training: bool) -> None:
        """Take all parameters and buffers; `training` normalizes by the batch."""
        self.params = params
        self.training = training
        self.updated: Params = {}

    def convolution(
        self, x: jax.Array, name: str, filters: int, kernel: int, stride: int = 1
    ) -> jax.Array:
        """Convolve without a bias, with padding that keeps the resolution (before the stride)."""
        return self._convolve(x, name, stride, groups=1)

    def depthwise(self, x: jax.Array, name: str, kernel: int, stride: int) -> jax.Array:
        """Filter each channel separately, without a bias."""
        return self._convolve(x, name, stride, groups=x.shape[-1])

    def _convolve(self, x: jax.Array, name: str, stride: int, groups: int) -> jax.Array:
        weight = self.params[f"{name}.weight"]
        pad = weight.shape[0] // 2
        return lax.conv_general_dilated(
            x,
            weight,
            (stride, stride),
            ((pad, pad), (pad, pad)),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=groups,
        )

    def batch_norm(self, x: jax.Array, name: str) -> jax.Array:
        """Normalize each channel by the batch or by the running statistics."""
        if self.training:
            mean, var = jnp.mean(x, (0, 1, 2)), jnp.var(x, (0, 1, 2))
            count = x.size // x.shape[-1]
            for key, new in (("mean", mean), ("var", var * (count / max(count - 1, 1)))):
                old = self.params[f"{name}.running_{key}"]
                self.updated[f"{name}.running_{key}"] = OLD_SHARE * old + (1 - OLD_SHARE) * new
        else:
            mean, var = (self.params[f"{name}.running_{key}"] for key in ("mean", "var"))
        scale = self.params[f"{name}.weight"] * lax.rsqrt(var + BATCH_NORM_EPS)
        return (x - mean) * scale + self.params[f"{name}.bias"]

    def linear(self, x: jax.Array, name: str, outputs: int) -> jax.Array:
        """Multiply by a matrix and add a bias."""
        return x @ self.params[f"{name}.weight"] + self.params[f"{name}.bias"]

    def relu(self, x: jax.Array, most: float | None = None) -> jax.Array:
        """Clamp to [0, most]."""
        return jax.nn.relu(x) if most is None else jnp.clip(x, 0.0, most)

    def add(self, x: jax.Array, y: jax.Array) -> jax.Array:
        """Add two tensors."""
        return x + y

    def max_pool(self, x: jax.Array) -> jax.Array:
        """Take the largest of 3x3 by stride 2."""
        pads = ((0, 0), (1, 1), (1, 1), (0, 0))
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), pads)

    def global_average(self, x: jax.Array) -> jax.Array:
        """Average each channel over its picture."""
        return jnp.mean(x, (1, 2))


def _arrays(params: Params) -> Arrays:
    """Return the operations of transformers over parameters by name."""
    return Arrays(
        param=params.__getitem__,
        constant=jnp.asarray,
        take=partial(jnp.take, axis=0),
        matmul=jnp.matmul,
        reshape=jnp.reshape,
        transpose=jnp.transpose,
        concat=jnp.concatenate,
        softmax=jax.nn.softmax,
        mean=partial(jnp.mean, axis=-1, keepdims=True),
        rsqrt=lax.rsqrt,
        gelu=partial(jax.nn.gelu, approximate=False),
        silu=jax.nn.silu,
        relu=jax.nn.relu,
        tanh=jnp.tanh,
    )


class JaxTrainer:
    """Trains a job's model step by step, the whole step jitted."""

    def __init__(self, data: JobData) -> None:
        """Convert weights and batches to JAX's layouts; nothing is compiled yet."""
        self.job = data.job
        self.shapes = data.weights
        self.params = {name: jnp.asarray(x) for name, x in to_channels_last(data.weights).items()}
        self.trained = _trained(data.job, self.params)
        self.momenta = {
            name: jnp.zeros_like(self.params[name]) for name in self.trained if data.job.momentum
        }
        pictures = data.images.ndim == 5
        self.batches = [
            (jnp.asarray(np.moveaxis(x, 1, -1) if pictures else x), jnp.asarray(labels))
            for x, labels in zip(data.images, data.labels, strict=True)
        ]
        self._run = jax.jit(self._train, donate_argnums=(0, 1, 2))

    def step(self, index: int) -> float:
        """Train on a batch and return its loss."""
        frozen = {name: x for name, x in self.params.items() if name not in self.trained}
        trained = {name: self.params[name] for name in self.trained}
        trained, frozen, self.momenta, loss = self._run(
            trained, frozen, self.momenta, *self.batches[index]
        )
        self.params = {**trained, **frozen}
        return float(loss)

    def predict(self, index: int) -> NDArray[np.float32]:
        """Return the logits of a batch by the running statistics."""
        logits, _ = self._logits(self.params, self.batches[index][0], training=False)
        return np.asarray(logits)

    def tensors(self) -> Tensors:
        """Return all parameters and buffers by PyTorch's names, in its layouts."""
        arrays = {name: np.asarray(x) for name, x in self.params.items()}
        return from_channels_last(arrays, self.shapes)

    def _logits(self, params: Params, x: jax.Array, training: bool) -> tuple[jax.Array, Params]:
        model = parse_model(self.job.model)
        if model.family not in CONVOLUTIONAL:
            return transformer(_arrays(params), x, model), {}
        net = JaxLayers(params, training)
        return convolutional_net(net, x, model, self.job.classes), net.updated

    def _train(
        self, trained: Params, frozen: Params, momenta: Params, x: jax.Array, labels: jax.Array
    ) -> Any:
        """Return updated parameters, buffers and momenta, and the loss."""

        def loss_of(some: Params) -> tuple[jax.Array, Params]:
            training = self.job.batch_norm == "train"
            logits, updated = self._logits({**frozen, **some}, x, training)
            if logits.ndim == 3:  # predict the next token at each position except the last
                return _cross_entropy(logits[:, :-1], x[:, 1:]), updated
            return _cross_entropy(logits, labels), updated

        (loss, updated), gradients = jax.value_and_grad(loss_of, has_aux=True)(trained)
        moved, new_momenta = {}, {}
        for name, value in trained.items():
            step = gradients[name] + self.job.weight_decay * value
            if self.job.momentum:
                step = new_momenta[name] = self.job.momentum * momenta[name] + step
            moved[name] = value - self.job.learning_rate * step
        return moved, {**frozen, **updated}, new_momenta, loss


def _cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1)
    return -jnp.mean(chosen)


def _trained(job: TrainingJob, params: Mapping[str, jax.Array]) -> frozenset[str]:
    """Return the names of trained params; FarmError for a share of channels."""
    if job.trainable is None:
        return frozenset(
            name
            for name, value in params.items()
            if not name.endswith(STATISTICS) and value.dtype == jnp.float32
        )
    shares = [name for name, channels in job.trainable.items() if channels is not None]
    if shares:
        raise FarmError(f"JAX trains whole tensors here, not a share of {shares[0]}'s channels")
    return frozenset(job.trainable)
