"""Scores of rows by the model before training, which DPO, IPO and KTO compare with.

They are computed once, by the compiled program, and stored: a resumed training has other weights.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pockengine.backends.session import Session
from pockengine.errors import FinetuneError, reason_of
from pockengine.files import write_text_whole
from pockengine.finetune.lm.judging import of_rows
from pockengine.finetune.lm.methods import REFERENCE, SCORES
from pockengine.finetune.lm.packing import Packed


def set_reference(session: Session, packed: Packed, batch: int) -> None:
    """Compute the scores of rows with the session's present weights."""
    packed.arrays[REFERENCE][:] = of_rows(session, packed, batch, SCORES)


def keep_reference(path: Path, parts: Sequence[Packed]) -> None:
    """Store the scores of training and evaluation rows."""
    write_text_whole(path, json.dumps([part.arrays[REFERENCE].tolist() for part in parts]) + "\n")


def read_reference(path: Path, parts: Sequence[Packed]) -> None:
    """Read stored scores; FinetuneError if the file is damaged or of other rows."""
    try:
        scores = [np.array(m, np.float32) for m in json.loads(path.read_text(encoding="utf-8"))]
        if [each.shape for each in scores] != [part.arrays[REFERENCE].shape for part in parts]:
            raise ValueError("it has scores of other rows")
    except (OSError, ValueError, TypeError) as error:
        raise FinetuneError(
            f"{path} is damaged: {reason_of(error)}; start again with another --out"
        ) from error
    for part, each in zip(parts, scores, strict=True):
        part.arrays[REFERENCE][:] = each
