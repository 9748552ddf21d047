"""Rows of models that mix the texts of a row, and rows of preferences."""

import json
from pathlib import Path

import numpy as np
import pytest

from pockengine.errors import FinetuneError
from pockengine.finetune.lm.methods import Method
from pockengine.finetune.lm.prepare import prepare
from pockengine.finetune.lm.rated import RatedTokens, pack_rated
from pockengine.finetune.lm.settings import Settings, Texts, TrainingSettings
from pockengine.finetune.lm.tokens import Tokens
from pockengine.tests.finetune.lm.decoders import WORDS, save
from pockengine.tests.zoo.zoo_language import GROUPED, SMALL, build

LENGTH = 32
CONV = {"layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False}


def test_texts_that_would_mix_have_rows_of_their_own(tmp_path: Path) -> None:
    sizes = {**SMALL, **GROUPED, **CONV, "vocab_size": WORDS}
    folder = save(tmp_path / "net", build("Lfm2", "Lfm2ForCausalLM", **sizes))
    rows = [{"prompt": "a", "completion": "b", "chosen": "b", "rejected": "c"}] * 3
    data = tmp_path / "data.jsonl"
    data.write_text("\n".join(map(json.dumps, rows)))
    found = prepare(Settings(folder, Texts(data, hold_out=0.0), TrainingSettings(LENGTH)))
    assert found.training.rows == 3
    assert "Lfm2ForCausalLM mixes the texts of a row: each text has a row" in found.remarks[0]
    for name in ("dpo", "kto"):
        course = TrainingSettings(LENGTH, method=Method(name))
        with pytest.raises(FinetuneError, match=f"--method {name} has two answers in a row"):
            prepare(Settings(folder, Texts(data, hold_out=0.0), course))


def test_answer_of_another_row_is_the_mismatched_one() -> None:
    """Also for the last row, if it has a batch of its own."""
    rated = [RatedTokens(Tokens(n, [n, n], [-100, n]), 1.0) for n in (1, 2, 3)]
    packed = pack_rated(rated, 4, Method("kto"), batch=2)
    np.testing.assert_array_equal(packed.arrays["input_ids"][:, 3], [2, 1, 2])


def test_held_out_shares_are_numbers() -> None:
    with pytest.raises(FinetuneError, match="held-out share is nan"):
        Texts(Path("data.jsonl"), hold_out=float("nan"))
