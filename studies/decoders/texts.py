"""The study's texts: TinyShakespeare and the Alpaca seed tasks, each split into two files.

One file is for tuning, including validation; the other, of other texts, is the test.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pockengine.errors import FinetuneError

SHAKESPEARE, ALPACA = "tinyshakespeare", "alpaca"
TUNED_LETTERS, TEST_LETTERS = 56_000, 60_000
TEST_TASKS = 45
"""Number of test tasks, of 175."""


@dataclass(frozen=True)
class Cut:
    """Files of texts, and the numbers of epochs of the tuning file for 54 or 70 steps of 2 rows."""

    tuned: Path
    test: Path
    epochs: int


def cut(name: str, data: Path, folder: Path) -> Cut:
    """Split a data set of CUTS in POCKENGINE_DATA into a folder; FinetuneError if it is missing."""
    try:
        return CUTS[name](data / "text", folder)
    except (OSError, ValueError, LookupError) as error:
        raise FinetuneError(f"the texts {name} below {data} cannot be read: {error}") from error


def _shakespeare(texts: Path, folder: Path) -> Cut:
    """Tune on the beginning, test on the end, which has other plays."""
    text = (texts / SHAKESPEARE / "input.txt").read_text(encoding="utf-8")
    tuned, test = folder / "shakespeare.txt", folder / "shakespeare_test.txt"
    tuned.write_text(text[:TUNED_LETTERS], encoding="utf-8")
    test.write_text(text[-TEST_LETTERS:], encoding="utf-8")
    return Cut(tuned, test, 1)


def _alpaca(texts: Path, folder: Path) -> Cut:
    """Write each task's first instance as a prompt with its completion; some tasks are the test
    set."""
    lines = (texts / "alpaca_seed" / "seed_tasks.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [_row(json.loads(line)) for line in lines]
    order = np.random.default_rng(0).permutation(len(rows))
    tuned, test = folder / "alpaca.jsonl", folder / "alpaca_test.jsonl"
    for path, part in ((tuned, order[TEST_TASKS:]), (test, order[:TEST_TASKS])):
        path.write_text("".join(rows[place] + "\n" for place in part), encoding="utf-8")
    return Cut(tuned, test, 2)


def _row(task: Mapping[str, object]) -> str:
    instances = task["instances"]
    assert isinstance(instances, list)
    context = f"\nInput: {instances[0]['input']}" if instances[0]["input"] else ""
    prompt = f"Instruction: {task['instruction']}{context}\nAnswer:"
    return json.dumps({"prompt": prompt, "completion": f" {instances[0]['output']}"})


CUTS: Mapping[str, Callable[[Path, Path], Cut]] = {SHAKESPEARE: _shakespeare, ALPACA: _alpaca}
