"""`pockengine evaluate` and `pockengine predict`: apply an artifact's weights to data."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
import numpy as np
from rich.box import SIMPLE
from rich.table import Table
from safetensors import SafetensorError
from safetensors.numpy import save_file

from pockengine.backends.training.pictures import Pictures
from pockengine.cli.options import OutputFile, console, json_option, make_folder_of, print_json
from pockengine.cli.rows import (
    Read,
    checkpoint_option,
    data_options,
    find_metrics,
    load_weights,
    metric_option,
    threads_option,
)
from pockengine.errors import ArtifactError, reason_of
from pockengine.files import write_whole
from pockengine.loaded import load


@click.command()
@click.argument("artifact", type=click.Path(path_type=Path))
@data_options
@checkpoint_option
@metric_option
@threads_option
@json_option
def evaluate(
    artifact: Path,
    files: Sequence[str],
    read: Read,
    checkpoint: Path | None,
    metrics: Sequence[str],
    threads: int,
    as_json: bool,
) -> None:
    """Evaluate ARTIFACT's weights, or a checkpoint's, by the loss and metrics over rows of data."""
    rows, loaded = read(files), load(artifact)
    load_weights(loaded, checkpoint)
    scores = loaded.evaluate(rows, metrics=find_metrics(metrics), threads=threads)
    if as_json:
        print_json({**asdict(scores), "metrics": dict(scores.metrics)})
    else:
        console().print(repr(scores))


@click.command()
@click.argument("artifact", type=click.Path(path_type=Path))
@data_options
@checkpoint_option
@click.option("--out", required=True, type=OutputFile(), help="Output file, safetensors.")
@threads_option
@json_option
def predict(
    artifact: Path,
    files: Sequence[str],
    read: Read,
    checkpoint: Path | None,
    out: Path,
    threads: int,
    as_json: bool,
) -> None:
    """Write ARTIFACT's outputs, a row [N, ...] for each row of the data."""
    if out.suffix in {".npy", ".npz"}:
        raise click.UsageError(f"predict writes safetensors; name a file of it, not {out.name}")
    rows, loaded = read(files), load(artifact)
    load_weights(loaded, checkpoint)
    entry = loaded.artifact.entries.get("predict")
    if not isinstance(rows, Pictures):
        known = {name: array for name, array in rows.items() if entry and name in entry.inputs}
        rows = known or rows
    outputs = loaded.predict(rows, threads=threads)
    arrays = {name: np.ascontiguousarray(array) for name, array in outputs.items()}
    make_folder_of(out)
    try:
        write_whole(out, lambda part: save_file(arrays, part))
    except (OSError, SafetensorError) as error:
        raise ArtifactError(f"{out} cannot be written: {reason_of(error)}") from error
    if as_json:
        print_json({name: list(array.shape) for name, array in arrays.items()})
        return
    table = Table(title=str(out), box=SIMPLE)
    for heading in ("output", "shape", "type"):
        table.add_column(heading)
    for name, array in arrays.items():
        table.add_row(name, "x".join(map(str, array.shape)), str(array.dtype))
    console().print(table)
