"""Model cards: README.md of a fine-tuned model, with the metadata of the Hugging Face Hub."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pockengine.errors import FinetuneError, reason_of
from pockengine.files import write_text_whole
from pockengine.finetune.lm.judging import Score
from pockengine.finetune.lm.settings import Settings

CARD = "README.md"
LOADING: Mapping[str, str] = {
    "peft": """\
from peft import PeftModel
from transformers import AutoModelForCausalLM

base = AutoModelForCausalLM.from_pretrained(BASE)
model = PeftModel.from_pretrained(base, FOLDER)
""",
    "transformers": """\
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained(FOLDER)
tokenizer = AutoTokenizer.from_pretrained(FOLDER)
""",
}
"""How each library loads a folder."""


def write_card(folder: Path, settings: Settings, library: str, scores: Mapping[str, Score]) -> None:
    """Write the card of a folder that this library loads; `scores` before and after training.

    It names files without their folders. FinetuneError if it cannot be written.
    """
    try:
        write_text_whole(folder / CARD, _card(settings, library, scores))
    except OSError as error:
        raise FinetuneError(f"{folder / CARD} cannot be written: {reason_of(error)}") from error


def _card(settings: Settings, library: str, scores: Mapping[str, Score]) -> str:
    base, method = settings.model.name, settings.course.method.name
    lines = [
        "---",
        *_metadata({"base_model": base, "library_name": library, "tags": ["pockengine", method]}),
        "---",
        "",
        f"# {base}, fine-tuned",
        "",
        f"Fine-tuned from {base} on {settings.texts.data.name} with PockEngine.",
        "",
        *_table("setting", _settings(settings)),
        "",
    ]
    if scores:
        lines += [*_table("held-out texts", {when: str(s) for when, s in scores.items()}), ""]
    return "\n".join([*lines, "```python", LOADING[library] + "```", ""])


def _settings(settings: Settings) -> dict[str, str]:
    course, options = settings.course, settings.options
    return {
        "method": course.method.name,
        "scheme": str(options.scheme),
        "optimizer": str(options.optimizer),
        "learning rate": f"{settings.rate:g}, {course.schedule}",
        "batch": f"{course.batch} x {course.length} tokens, {options.micro_batches} per update",
        "training": f"{course.steps} steps" if course.steps else f"{course.epochs or 1} epochs",
        "seed": str(course.seed),
    }


def _metadata(facts: Mapping[str, Any]) -> list[str]:
    """Format YAML: JSON values are valid YAML."""
    return [f"{name}: {json.dumps(value)}" for name, value in facts.items()]


def _table(title: str, rows: Mapping[str, str]) -> list[str]:
    body = (f"| {name} | {value.replace('|', ' ')} |" for name, value in rows.items())
    return [f"| {title} | |", "|---|---|", *body]
