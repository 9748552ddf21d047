"""`pockengine pack-lm MODEL --data chats.jsonl --out rows.safetensors`: rows for a device."""

from pathlib import Path

import click

from pockengine.cli.options import OutputFile, json_option, make_folder_of, print_json
from pockengine.cli.texts import LENGTH, ModelFolder, RowForm, row_options
from pockengine.finetune.lm.settings import Texts


@click.command("pack-lm")
@click.argument("model", type=ModelFolder())
@click.option(
    "--data",
    required=True,
    type=click.Path(path_type=Path, exists=True),
    help="JSON lines of chats, a folder of the package datasets, or one plain text.",
)
@click.option("--out", required=True, type=OutputFile(), help="Output file, safetensors.")
@row_options(LENGTH)
@json_option
def pack_lm(model: Path, data: Path, out: Path, form: RowForm, as_json: bool) -> None:
    """Pack texts into rows of tokens, on which a folder of `compile-lm` for MODEL trains.

    The runner packs most texts itself. It takes these rows for texts that it cannot pack: chats
    that call tools, and chat templates that write some turns otherwise than others. Lines of --data
    are as for `finetune-lm`, and --max-length is as for `compile-lm`.
    """
    if out.suffix != ".safetensors":
        raise click.UsageError(f"pack-lm writes safetensors; name a file of it, not {out.name}")
    from pockengine.finetune.lm.row_file import write_rows  # late: PyTorch takes seconds

    make_folder_of(out)
    length = form.length or LENGTH
    texts = Texts(data, truncate=form.truncate, together=form.together)
    rows, remarks = write_rows(model, texts, length, out)
    if as_json:
        return print_json({"rows": rows.rows, "tokens": rows.tokens, "remarks": list(remarks)})
    for remark in remarks:
        click.echo(remark, err=True)
    click.echo(f"written {rows.tokens:,} tokens in {rows.rows} rows of {length} to {out}")
