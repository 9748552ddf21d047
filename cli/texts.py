"""Texts for `finetune-lm`, `sensitivity` and `search`, and the decoders that train on them."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

from pockengine.cli.options import Command, ModelChoice
from pockengine.errors import FinetuneError
from pockengine.extras import need
from pockengine.finetune.subject import Subject
from pockengine.finetune.task import Tuning
from pockengine.models.hugging_face import is_decoder

LENGTH = 256
"""Default tokens per row."""
DATA_SEED = 0
"""Seed of the held-out examples, the same for all trial seeds."""


@dataclass(frozen=True)
class RowForm:
    """How texts become rows of tokens; `length` is None by default."""

    length: int | None = None
    truncate: bool = False
    together: bool = True


class ModelFolder(click.Path):
    """A folder of a transformers model; a usage error says how to get one."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the path of an existing folder."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if path.is_file():
            self.fail(
                f"{path} is a file; give its folder, which has config.json and tokenizer.json too",
                param,
                ctx,
            )
        if not path.exists():
            self.fail(
                f"there is no folder {path}; give one that save_pretrained has written. A model of "
                "the Hugging Face Hub is downloaded by `hf download NAME --local-dir FOLDER`.",
                param,
                ctx,
            )
        return path


def data_option(required: bool, words: str) -> Callable[[Command], Command]:
    """Return the option --train, under another name --data, as `data`."""
    kind = click.Path(path_type=Path)
    return click.option("--train", "--data", "data", required=required, type=kind, help=words)


def row_options(default: int | None, prefix: str = "") -> Callable[[Command], Command]:
    """Return a decorator that adds --max-length, --truncate and --pack, combined as `form`.

    `prefix` starts each help text.
    """

    def decorate(command: Command) -> Command:
        @wraps(command)
        def wrapped(*args: Any, **others: Any) -> None:
            names = ("length", "truncate", "together")
            form = RowForm(**{name: others.pop(name) for name in names})
            command(*args, form=form, **others)

        parts = (
            click.option(
                "--max-length",
                "length",
                default=default,
                show_default=True,
                type=click.IntRange(2),
                help=f"{prefix}Tokens per row" + ("." if default else f"; default: {LENGTH}."),
            ),
            click.option(
                "--truncate",
                is_flag=True,
                help=f"{prefix}Cut longer texts instead of leaving them out.",
            ),
            click.option(
                "--pack/--no-pack",
                "together",
                default=True,
                show_default=True,
                help=f"{prefix}Several texts share a row.",
            ),
        )
        for part in reversed(parts):
            wrapped = part(wrapped)
        return wrapped

    return decorate


def names_decoder(model: ModelChoice) -> bool:
    """Whether MODEL is a folder of a decoder, which trains on texts."""
    path = Path(model.name)
    return path.is_dir() and is_decoder(path)


def open_decoder(model: ModelChoice, form: RowForm, others: Mapping[str, object]) -> Subject:
    """Open a decoder; FinetuneError names an option of `others` that does not apply to one."""
    named = [name for name, value in others.items() if value is not None]
    if named or model.shapes:
        raise FinetuneError(
            f"{(named or ['--shape'])[0]} does not apply to the decoder {model.name}; its rows "
            "are --batch and --max-length"
        )
    need(f"the decoder {model.name}", "language")
    from pockengine.finetune.lm.subject import decoder_subject

    return decoder_subject(Path(model.name), model.rows, form.length or LENGTH)


def read_texts(model: ModelChoice, data: Path, share: float, form: RowForm) -> Tuning:
    """Read a decoder's texts and hold out a share for evaluation; skipped texts are reported."""
    if not 0 < share < 1:
        raise FinetuneError(f"the share of validation is {share:g}; give one in (0, 1)")
    from pockengine.finetune.lm.settings import Texts
    from pockengine.finetune.lm.subject import text_tuning

    texts = Texts(data, None, share, truncate=form.truncate, together=form.together)
    tuning, remarks = text_tuning(Path(model.name), texts, form.length or LENGTH, DATA_SEED)
    for remark in remarks:
        click.echo(remark, err=True)
    return tuning
