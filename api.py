"""The user's way in: `pockengine.compile` takes a model to an artifact for a device.

Everything here is a few lines over the stages; use them directly for what this does not offer.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from pockengine.backends.protocol import Progress
from pockengine.compilation import Compilation, StepCompilation
from pockengine.compiled import Compiled
from pockengine.compiler.passes.base import Observer
from pockengine.devices import Device
from pockengine.frontends.choices import with_choices
from pockengine.frontends.registry import step_source
from pockengine.options import CompileKeywords, CompileOptions


def compile(
    model: Any,
    example_inputs: Any,
    *,
    loss: Any = None,
    constants: Mapping[str, np.ndarray] | None = None,
    trainable: Mapping[str, bool] | None = None,
    options: CompileOptions | None = None,
    folder: Path | str | None = None,
    progress: Progress | None = None,
    observe: Observer | None = None,
    **overrides: Unpack[CompileKeywords],
) -> Compiled:
    """Compile a model to a training artifact.

    `model` is of PyTorch, TensorFlow, JAX or ONNX, or a `Graph`. JAX's `example_inputs` begin with
    the parameters. `loss` is None where the model returns it. Every field of CompileOptions is a
    keyword too, which overrides that of `options`; docs/usage.md has all of them.
    """
    wanted = (options or CompileOptions()).replaced(**overrides)
    place = None if folder is None else Path(folder)
    chosen = with_choices(model, constants, trainable)
    compilation = Compilation.of(chosen, example_inputs, loss, wanted)
    return compilation.compile(place, progress, observe)


def compile_step(
    step: Callable[..., Any],
    example_inputs: Any,
    *,
    carried: int = 1,
    device: Device | str | Path = "host",
    backend: str | None = None,
    folder: Path | str | None = None,
    progress: Progress | None = None,
) -> Compiled:
    """Compile a whole training step of JAX as it is, its gradients and updates included.

    The first `carried` arguments (params, an optimiser's state, a TrainState) stay in the artifact;
    the step returns their new values first, then its outputs. Run it by `session.train_step`.
    """
    options = CompileOptions(device=device, backend=backend)
    source = step_source(step, example_inputs, carried)
    place = None if folder is None else Path(folder)
    return StepCompilation.of_step(source, options).compile(place, progress)
