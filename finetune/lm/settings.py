"""Settings of a language model's fine-tuning, and the check that a resumed one matches."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pockengine.compiler.optim import AdamW
from pockengine.compiler.passes.backward.differentiate import Clip
from pockengine.errors import FinetuneError, reason_of
from pockengine.files import write_text_whole
from pockengine.finetune.lm.methods import SUPERVISED, Method
from pockengine.options import CompileOptions

RATES = dict.fromkeys(("lora", "dora", "rslora"), 2e-4)
RATE = 2e-5
"""Default rate of schemes without adapters."""
MOST = 1e38
"""Rates and other factors are f32."""


@dataclass(frozen=True)
class TrainingSettings:
    """Training settings: length, rate, and batch."""

    length: int
    batch: int = 1
    epochs: int | None = 1
    steps: int | None = None
    lr: float | None = None
    schedule: str = "cosine"
    warmup: int = 0
    seed: int = 0
    method: Method = SUPERVISED
    neftune: float | None = None
    """The alpha of the noise on embeddings; None: no noise."""

    def __post_init__(self) -> None:
        if self.lr is not None and not 0 <= self.lr < MOST:
            raise FinetuneError(f"--lr is {self.lr:g}; give a number of at least 0")
        if self.neftune is not None and not 0 < self.neftune < MOST:
            raise FinetuneError(f"--neftune is {self.neftune:g}; give a number above 0, such as 5")
        if not 0 <= self.seed < 1 << 32:
            raise FinetuneError(f"--seed is {self.seed}; give at most {(1 << 32) - 1}")


@dataclass(frozen=True)
class Texts:
    """The texts, and their layout in rows."""

    data: Path
    validation: Path | None = None
    hold_out: float = 0.1
    truncate: bool = False
    together: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.hold_out < 1:
            raise FinetuneError(f"the held-out share is {self.hold_out:g}; give 0 to 0.9")


DECODER = CompileOptions(scheme="lora", optimizer=AdamW(), clip=Clip(norm=1.0))
"""Default training options of a decoder."""


@dataclass(frozen=True)
class Settings:
    """A whole fine-tuning."""

    model: Path
    texts: Texts
    course: TrainingSettings
    options: CompileOptions = DECODER

    @property
    def rate(self) -> float:
        """The maximum rate: the given one, or the scheme's default."""
        if self.course.lr is not None:
            return self.course.lr
        return RATES.get(str(self.options.scheme).partition("-")[0], RATE)

    def facts(self) -> dict[str, str]:
        """Return the settings that a resumed training must match, by name; digests of files."""
        parts = (self.texts, self.course, self.options)
        named = {name: str(value) for part in parts for name, value in vars(part).items()}
        files = {"data": self.texts.data}
        if named["scheme"].endswith(".toml"):
            files["scheme"] = Path(named["scheme"])
        if self.course.method.teacher is not None:
            files["teacher"] = self.course.method.teacher
        digests = {name: _digest(path) for name, path in files.items()}
        return {"model": str(self.model), **named, **digests}


def keep(settings: Settings, path: Path) -> None:
    """Store a training's settings."""
    write_text_whole(path, json.dumps(settings.facts(), indent=1) + "\n")


def check_same(settings: Settings, path: Path) -> None:
    """Raise FinetuneError unless the training to resume has the same settings."""
    try:
        known: Any = json.loads(path.read_text(encoding="utf-8"))
        changed = [name for name, value in settings.facts().items() if known[name] != value]
    except (OSError, ValueError, TypeError, LookupError) as error:
        raise FinetuneError(
            f"{path} describes no training to resume: {reason_of(error)}; start without --resume"
        ) from error
    if changed:
        raise FinetuneError(
            f"{path.parent} was started with another {', '.join(changed)}; resume with the same, "
            "or give another --out"
        )


def _digest(path: Path) -> str:
    """Return a digest of a file, or of the files of a folder."""
    digest = hashlib.sha256()
    try:
        for file in sorted(path.iterdir()) if path.is_dir() else [path]:
            digest.update(file.read_bytes())
        return digest.hexdigest()
    except OSError as error:
        raise FinetuneError(f"{path} cannot be read: {reason_of(error)}") from error
