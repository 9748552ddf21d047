"""A decoder and texts as the subject of `sensitivity` and `search`: its own loss judges schemes."""

from dataclasses import replace
from pathlib import Path

from pockengine.compiler.ir.graph import LOSS
from pockengine.errors import FinetuneError
from pockengine.finetune.judges import HELD_OUT
from pockengine.finetune.lm.packing import LABELS, Packed, pack
from pockengine.finetune.lm.prepare import open_decoder, read_parts
from pockengine.finetune.lm.settings import Texts
from pockengine.finetune.lm.tokens import open_tokenizer
from pockengine.finetune.subject import Subject
from pockengine.finetune.task import Examples, Tuning


def decoder_subject(folder: Path, batch: int, length: int) -> Subject:
    """Open a folder of transformers, for batches of `batch` rows of `length` tokens."""
    graph = open_decoder(folder, length).graph(batch, length)
    (logits,) = (output for output in graph.outputs if output != LOSS)
    return Subject(str(folder), graph, logits, target=LABELS, judge=HELD_OUT.name)


def text_tuning(folder: Path, texts: Texts, length: int, seed: int) -> tuple[Tuning, list[str]]:
    """Read texts into training and evaluation rows, and report skipped texts.

    FinetuneError if no text is left for evaluation.
    """
    model = open_decoder(folder, length)
    parts = read_parts(open_tokenizer(folder, model.vocabulary), texts, length, seed)
    if not parts.judging:
        raise FinetuneError(
            f"{texts.data} has {len(parts.training)} examples, and none can be held out to judge; "
            "give at least two, or a larger share"
        )
    together = texts.together and model.separates_texts
    rows = [pack(part, length, together) for part in (parts.training, parts.judging)]
    return Tuning(*map(examples_of, rows)), list(parts.remarks)


def examples_of(packed: Packed) -> Examples:
    """Return packed rows as examples, whose labels are the counted tokens."""
    inputs = {name: array for name, array in packed.arrays.items() if name != LABELS}
    return Examples(inputs, packed.arrays[LABELS])


def text_rows(folder: Path, texts: Texts, length: int) -> Examples:
    """Read all texts of a file into rows, for a test."""
    model = open_decoder(folder, length)
    tokenizer = open_tokenizer(folder, model.vocabulary)
    parts = read_parts(tokenizer, replace(texts, hold_out=0.0), length, seed=0)
    return examples_of(pack(parts.training, length, texts.together and model.separates_texts))
