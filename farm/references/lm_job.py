"""A language model's fine-tuning, or its answer to a prompt, as a folder: settings and tokens.

The model is a folder as transformers writes it, which every worker reads by itself; a job names it.
AdamW with PyTorch's own settings; a batch's labels are its tokens, of which each is predicted from
those before it.
"""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from pockengine.errors import FarmError

SETTINGS, TOKENS = "lm_job.json", "tokens.safetensors"


@dataclass(frozen=True)
class LmJob:
    """Trained parameters and rates: `adapters` is a PEFT folder, `trainable` names parameters.

    At most one of them is given; without either all of the model trains. With `answer` nothing
    trains: a step generates that number of tokens after the first row of the batch, the likeliest
    each time. With `cached` its keys and values are computed before, except the last token's.
    """

    model: str
    learning_rate: float
    adapters: str | None = None
    trainable: tuple[str, ...] | None = None
    answer: int = 0
    cached: bool = False


@dataclass(frozen=True)
class LmData:
    """A job with its batches of tokens, i64 [steps, rows, tokens]."""

    job: LmJob
    tokens: NDArray[np.int64]

    @property
    def steps(self) -> int:
        """How many batches there are."""
        return int(self.tokens.shape[0])

    @property
    def prompt(self) -> list[int]:
        """The first row of the first batch."""
        return [int(token) for token in self.tokens[0, 0]]

    def inputs(self, index: int) -> dict[str, NDArray[np.int64]]:
        """Return a batch by the names of transformers."""
        ids = self.tokens[index]
        places = np.broadcast_to(np.arange(ids.shape[1], dtype=np.int64), ids.shape)
        return {"input_ids": ids, "labels": ids, "position_ids": np.ascontiguousarray(places)}


def write_lm_job(folder: Path, data: LmData) -> None:
    """Write a job into a folder, which is created if needed."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(dataclasses.asdict(data.job), indent=1) + "\n"
    (folder / SETTINGS).write_text(text, encoding="utf-8")
    save_file({"tokens": np.ascontiguousarray(data.tokens)}, folder / TOKENS)


def read_lm_job(folder: Path) -> LmData:
    """Read a job that `write_lm_job` wrote; FarmError if something is missing or damaged."""
    try:
        settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        names = settings.pop("trainable")
        job = LmJob(**settings, trainable=None if names is None else tuple(names))
        return LmData(job, load_file(folder / TOKENS)["tokens"])
    except (OSError, ValueError, TypeError, KeyError, SafetensorError) as error:
        raise FarmError(f"the job in {folder} cannot be read: {error!r}") from error
