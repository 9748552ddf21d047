"""`pockengine pictures FOLDER ARTIFACT OUT`: convert pictures to rows for training on a board."""

from pathlib import Path

import click

from pockengine.backends.artifact import load_artifact
from pockengine.backends.training.picture_form import picture_form
from pockengine.backends.training.signature import signature_of
from pockengine.cli.rows import mean_option, std_option
from pockengine.finetune.pictures import write_pictures


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("artifact", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path, file_okay=False))
@mean_option
@std_option
@click.option(
    "--skip-bad", default=0, type=click.IntRange(0), help="Maximum number of skipped pictures."
)
def pictures(
    folder: Path,
    artifact: Path,
    out: Path,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    skip_bad: int,
) -> None:
    """Turn the JPEG and PNG pictures of FOLDER's class folders into rows for ARTIFACT.

    OUT gets a file NAME.npy for each input, as `pockengine-run --data OUT` reads them, and
    classes.txt, whose line i is the class of label i. Pictures are scaled to cover the input's size
    and cut at their middle. The runner takes FOLDER itself; rows save a slow board the decoding.
    --mean and --std are one number, or one for each channel.
    """
    opened = load_artifact(artifact)
    form = picture_form(opened.name, signature_of(opened).inputs, mean, std)
    written = write_pictures(folder, form, out, skip_bad)
    for fault in written.left_out:
        click.echo(f"left out {fault}", err=True)
    click.echo(f"written {written.rows} rows of {len(written.classes)} classes to {out}")
