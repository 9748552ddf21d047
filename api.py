"""The entry point for users: `pockengine.compile` turns a model into an artifact for a device.

These are thin wrappers around the stages; use the stages directly for anything more.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from pockengine.backends.protocol import Progress
from pockengine.compilation import Compilation, StepCompilation
from pockengine.compiled import Compiled
from pockengine.compiler.ir import Graph
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
    entries: Mapping[str, Graph] | None = None,
    options: CompileOptions | None = None,
    folder: Path | str | None = None,
    progress: Progress | None = None,
    observe: Observer | None = None,
    **overrides: Unpack[CompileKeywords],
) -> Compiled:
    """Compile a model to a training artifact.

    `model` is a PyTorch, TensorFlow, JAX or ONNX model, or a `Graph`. For JAX, `example_inputs`
    begin with the parameters. Without `loss`, a Keras model or its file gets the loss that it was
    compiled with, and any other returns its own; `loss="own"` is for one that returns its own in
    any case. Every field of CompileOptions is also a keyword, which overrides the field of
    `options`. `entries` are further entries by name, on the same parameters, such as a decoder's of
    `models/decoding.py`.
    """
    chosen_options = (options or CompileOptions()).replaced(**overrides)
    place = None if folder is None else Path(folder)
    chosen = with_choices(model, constants, trainable)
    compilation = Compilation.of(
        chosen, example_inputs, loss, options=chosen_options, others=entries or {}
    )
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
    """Compile a complete JAX training step, including its own gradients and updates.

    The first `carried` arguments (params, an optimizer's state, a TrainState) are stored in the
    artifact; the step returns their new values first, then its outputs. Run it by
    `session.train_step`.
    """
    options = CompileOptions(device=device, backend=backend)
    source = step_source(step, example_inputs, carried)
    place = None if folder is None else Path(folder)
    return StepCompilation.of_step(source, options).compile(place, progress)
