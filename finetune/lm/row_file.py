"""Rows of tokens as a file, which a device trains on where it cannot pack the texts itself."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from safetensors import SafetensorError
from safetensors.numpy import save_file

from pockengine.errors import FinetuneError, reason_of
from pockengine.files import write_whole
from pockengine.finetune.lm.packing import Packed, pack
from pockengine.finetune.lm.prepare import open_decoder, read_parts
from pockengine.finetune.lm.settings import Texts
from pockengine.finetune.lm.tokens import open_tokenizer


def write_rows(folder: Path, texts: Texts, length: int, out: Path) -> tuple[Packed, Sequence[str]]:
    """Pack texts into rows of `length` tokens for a decoder, and write them as safetensors.

    The arrays are `input_ids`, `labels` and `position_ids`, each i64 [N, length], as the runner of
    `compile-lm` reads them. Returns the rows, and remarks on skipped lines. ImportModelError or
    FinetuneError if the model or the texts cannot be read.
    """
    model = open_decoder(folder, length)
    tokenizer = open_tokenizer(folder, model.vocabulary)
    parts = read_parts(tokenizer, replace(texts, hold_out=0.0), length, seed=0)
    rows = pack(parts.training, length, texts.together and model.separates_texts)
    try:
        write_whole(out, lambda part: save_file(rows.arrays, part))
    except (OSError, SafetensorError) as error:
        raise FinetuneError(f"{out} cannot be written: {reason_of(error)}") from error
    return rows, parts.remarks
