"""`pockengine export ARTIFACT CHECKPOINT --out FILE`: export trained weights."""

from pathlib import Path
from typing import Any

import click
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

from pockengine.backends.artifact import Artifact
from pockengine.backends.checkpoint import read_checkpoint
from pockengine.backends.stored import decoded
from pockengine.backends.training.checkpoints import checkpoint_file
from pockengine.cli.options import (
    ModelChoice,
    file_choices,
    file_options,
    loss_option,
    make_folder_of,
    shape_option,
)
from pockengine.compiler.ir.blocks import scales_name
from pockengine.compiler.ir.graph import Graph
from pockengine.compiler.sparse.lora import merged, with_folded
from pockengine.errors import ArtifactError, reason_of
from pockengine.extras import need
from pockengine.files import write_whole
from pockengine.frontends.frontend import Source, framework_arrays
from pockengine.frontends.peft.files import TunedParams, save_adapters
from pockengine.frontends.registry import find_source
from pockengine.loaded import load

ONNX = ".onnx"
OTHERS = (".bin", ".ckpt", ".h5", ".keras", ".npy", ".npz", ".pt", ".pth", ".tflite")
"""File extensions of unsupported formats."""


@click.command()
@click.argument("artifact", type=click.Path(path_type=Path))
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="A file, or a folder.")
@click.option("--adapters", is_flag=True, help="Write only LoRA adapters, in PEFT's format.")
@click.option("--model", "name", help="The MODEL that ARTIFACT was compiled from.")
@shape_option
@loss_option
@file_options
def export(
    artifact: Path,
    checkpoint: Path,
    out: Path,
    adapters: bool,
    name: str | None,
    shapes: tuple[tuple[str, tuple[int, ...]], ...],
    loss: str | None,
    **options: Any,
) -> None:
    """Write CHECKPOINT's trained weights with the model's names and order of dimensions.

    Of a training's folder it is the best or else newest checkpoint.
    LoRA's products are merged into their weights, unless --adapters keeps them apart. A file ending
    in .onnx is the ONNX --model with tuned weights; any other is safetensors, for every framework.
    """
    if (adapters or out.suffix == ONNX) and name is None:
        raise click.UsageError("--adapters, and a file of ONNX, need the --model they belong to")
    if out.suffix in OTHERS:
        raise click.UsageError(f"{out}: weights are written as safetensors; end its name so")
    checkpoint, loaded = checkpoint_file(checkpoint), load(artifact)
    if name is None:
        make_folder_of(out)
        loaded.save_weights(checkpoint, out)
    else:
        settings = dict(shapes), loss, 1, *file_choices(options)
        found = ModelChoice(name, None, *settings).find()
        source = find_source(found.model, found.inputs)
        graph = source.graph(found.loss)
        check_model(loaded.artifact, graph, name)
        values = decoded(loaded.artifact.params, read_checkpoint(loaded.artifact, checkpoint))
        if adapters:
            trained = tuple(loaded.artifact.scheme)
            tuning = TunedParams(graph, loaded.artifact.adapters, trained)
            save_adapters(tuning, values, out, found.model)
        else:
            whole = with_folded(graph, loaded.artifact.adapters, values)
            write_tuned(source, graph, merged(loaded.artifact.adapters, whole), out)
    click.echo(f"written {out}")


def check_model(artifact: Artifact, graph: Graph, name: str) -> None:
    """Raise ArtifactError unless the graph has all params of the artifact."""
    factors = {factor for adapter in artifact.adapters for factor in adapter.params}
    specs = artifact.params
    scales = {scales_name(param) for param, spec in specs.items() if spec.blocks is not None}
    for param, spec in specs.items():
        if spec.kind == "param" and param not in factors | scales:
            owner = graph.params.get(param)
            if owner is None or owner.value.shape != spec.shape:
                there = "no such param" if owner is None else f"{owner.value.type}"
                raise ArtifactError(
                    f"artifact {artifact.folder} has {param} {list(spec.shape)}, and {name} "
                    f"{there}; give the model that it was compiled from"
                )


def write_tuned(source: Source, graph: Graph, values: dict[str, np.ndarray], out: Path) -> None:
    """Write merged weights as safetensors, or in the model's ONNX file."""
    try:
        if out.suffix != ONNX:
            arrays = framework_arrays(graph, values)
            make_folder_of(out)
            write_whole(out, lambda part: save_file(arrays, part))
            return
        framework = source.frontend.framework
        if framework != "ONNX":
            raise ArtifactError(
                f"{out}: only a --model in ONNX is written as ONNX, and this one is of "
                f"{framework}; give a name that ends in .safetensors"
            )
        need(str(out), "onnx")
        import onnx

        model = source.tuned(graph, values)
        make_folder_of(out)
        write_whole(out, lambda part: onnx.save(model, part))
    except (OSError, SafetensorError, ValueError) as error:
        raise ArtifactError(f"{out} cannot be written: {reason_of(error)}") from error
