"""The stories example with fewer steps: stories260K learns to write like Shakespeare."""

import os
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from pockengine.errors import ImportModelError
from pockengine.examples.stories import PROMPTS, teach
from pockengine.finetune.lm.judging import TextScore
from pockengine.models.llama2c import write_folder

DATA = Path(os.environ.get("POCKENGINE_DATA", ""))
STORY = "Once upon a time, there was a little girl named Lily. She loved to play outside."


@pytest.fixture
def model(tmp_path: Path) -> Path:
    place = DATA / "weights/stories260k"
    if not place.is_dir():
        pytest.skip("needs weights/stories260k of POCKENGINE_DATA")
    write_folder(place / "stories260K.bin", place / "tok512.bin", tmp_path / "model")
    return tmp_path / "model"


def test_the_folder_contains_the_stories_model(model: Path) -> None:
    module = transformers.AutoModelForCausalLM.from_pretrained(model)
    words = transformers.PreTrainedTokenizerFast.from_pretrained(model)
    ids = torch.tensor([words(STORY)["input_ids"]])
    assert words.decode(ids[0, 1:]) == STORY
    with torch.no_grad():
        assert float(module(input_ids=ids, labels=ids).loss) < 0.5
        assert float(module(input_ids=ids.flip(1), labels=ids.flip(1)).loss) > 4


def test_a_new_style_is_learned(model: Path, tmp_path: Path) -> None:
    text = DATA / "text/tinyshakespeare/input.txt"
    if not text.is_file():
        pytest.skip("needs text/tinyshakespeare of POCKENGINE_DATA")
    part = tmp_path / "part.txt"
    part.write_text(text.read_text(encoding="utf-8")[:200_000], encoding="utf-8")
    report = teach(model, part, tmp_path / "out", "full", 25, 1)
    before, after = report.before.score, report.after.score
    assert isinstance(before, TextScore)
    assert isinstance(after, TextScore)
    assert before.loss > 4
    assert after.loss < 3.7
    assert len(report.after.answers) == len(PROMPTS)
    assert report.after.answers != report.before.answers


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    checkpoint, words = tmp_path / "a.bin", tmp_path / "b.bin"
    checkpoint.write_bytes(struct.pack("<7i", 8, 8, 1, 2, 1, 16, 8) + np.zeros(9, "f4").tobytes())
    words.write_bytes(b"")
    with pytest.raises(ImportModelError, match="copy them again"):
        write_folder(checkpoint, words, tmp_path / "model")
