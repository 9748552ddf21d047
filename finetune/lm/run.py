"""Fine-tune a language model, from its folder to its new weights.

OUT/settings.json     the settings, which a resumed training must match
OUT/artifact          the compiled program
OUT/checkpoints       the newest checkpoints, and the log of steps and epochs
OUT/before.json       the loss and answers before the first step
OUT/reference.json    scores of rows before the first step, for methods that need them
OUT/adapter           LoRA's adapters, as PEFT reads them
OUT/adapter.gguf      the same for llama.cpp, if it knows the family
OUT/merged            the model with its new weights, as transformers reads it

Both folders have a model card, README.md.
"""

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pockengine.api import compile
from pockengine.backends.artifact import Artifact
from pockengine.backends.session import Session
from pockengine.backends.training.callbacks import Callback
from pockengine.backends.training.checkpoints import Checkpoints
from pockengine.backends.training.history import History
from pockengine.backends.training.progress import Bar, Unit
from pockengine.backends.training.trainer import Trainer
from pockengine.compiler.passes.forward.add_noise import EmbeddingNoise
from pockengine.errors import FinetuneError
from pockengine.files import write_text_whole
from pockengine.finetune.lm.callbacks import Estimate, HeldOut, judge_held_out
from pockengine.finetune.lm.card import write_card
from pockengine.finetune.lm.chat import end_tokens
from pockengine.finetune.lm.judging import Score, score_of
from pockengine.finetune.lm.prepare import FineTuneInputs
from pockengine.finetune.lm.reference import keep_reference, read_reference, set_reference
from pockengine.finetune.lm.rollouts import Rollouts
from pockengine.finetune.lm.sampling import Sampling, complete
from pockengine.finetune.lm.settings import Settings, check_same, keep
from pockengine.finetune.lm.tokens import answer_text
from pockengine.finetune.lm.written import adapter_fault, write_adapters, write_merged
from pockengine.loaded import load
from pockengine.models.causal_lm import CausalLM
from pockengine.terminal import PlainConsole, Say

ADAPTER = "adapter"
SETTINGS, BEFORE, REFERENCE_SCORES = "settings.json", "before.json", "reference.json"
_WIDTH = 120


@dataclass(frozen=True)
class Glimpse:
    """State of a model at one moment: its loss on held-out texts, and its answers."""

    score: Score | None
    answers: Sequence[str]

    def facts(self) -> dict[str, Any]:
        """Return it as JSON facts."""
        figures = {} if self.score is None else self.score.facts()
        return {**figures, "answers": list(self.answers)}


@dataclass
class Report:
    """Result of a fine-tuning."""

    before: Glimpse
    after: Glimpse
    history: History
    seconds: float
    tokens_per_second: float
    arena_bytes: int
    written: list[Path] = field(default_factory=list)


@dataclass(frozen=True)
class RunSettings:
    """Execution settings, which do not change results."""

    threads: int = 1
    resume: bool = False
    save_every: int | None = None
    merge: bool = True
    callbacks: Sequence[Callback] = ()
    sampling: Sampling = field(default_factory=Sampling)
    say: Say = lambda text: None
    compiling: Callable[[], AbstractContextManager[Say | None]] = nullcontext
    """Opens the progress display of the compilation."""


def finetune(
    settings: Settings, prepared: FineTuneInputs, out: Path, run_settings: RunSettings
) -> Report:
    """Compile, train and write; FinetuneError if a resumed training has other settings."""
    if run_settings.resume:
        check_same(settings, out / SETTINGS)
    else:
        _check_unused(out)
    _steps(settings, prepared)  # before the compilation, which takes minutes
    if prepared.model.remark is not None:
        run_settings.say(prepared.model.remark)
    trainer = _trainer(settings, prepared, out, run_settings)
    check_written(prepared, trainer.artifact, run_settings)
    keep(settings, out / SETTINGS)
    run_settings.say(_memory(trainer.artifact))
    if settings.course.method.refers:
        _set_reference(trainer, prepared, settings, out=out, run_settings=run_settings)
    before = _before(trainer, prepared, settings, out=out, run_settings=run_settings)
    drawn = _rollouts(settings, prepared, run_settings)
    watch = HeldOut(prepared, settings.course.batch, run_settings.say, drawn)
    begun = time.perf_counter()
    history = _fit(
        settings, prepared, trainer, out=out, run_settings=run_settings, watch=watch, drawn=drawn
    )
    seconds = time.perf_counter() - begun
    session = trainer.trained
    after = glimpse(session, prepared, settings, run_settings)
    written = _write(prepared, session, out, run_settings)
    _write_cards(settings, written, {"before": before.score, "after": after.score})
    arena = session.artifact.arena_bytes
    return Report(
        before,
        after,
        history,
        seconds=seconds,
        tokens_per_second=watch.speed(),
        arena_bytes=arena,
        written=written,
    )


def _write_cards(
    settings: Settings, written: Sequence[Path], scores: Mapping[str, Score | None]
) -> None:
    for folder in (path for path in written if path.is_dir()):
        library = "peft" if folder.name == ADAPTER else "transformers"
        write_card(folder, settings, library, {w: s for w, s in scores.items() if s is not None})


def check_written(prepared: FineTuneInputs, artifact: Artifact, run_settings: RunSettings) -> None:
    """Raise FinetuneError if neither adapters nor merged weights would be written."""
    if run_settings.merge or not artifact.adapters:
        return
    fault = adapter_fault(prepared.model, prepared.graph, artifact)
    if fault is not None:
        raise FinetuneError(f"the adapters cannot be written: {fault}; leave out --no-merge")


def _memory(artifact: Artifact) -> str:
    """Format the memory that a training takes, planned by the compiler."""
    parts = (
        (artifact.params_bytes, "trained weights and their states"),
        (artifact.arena_bytes, "arena"),
        (artifact.frozen_bytes, "frozen weights, read from their file"),
    )
    return "memory: " + ", ".join(f"{size / 1e6:,.1f} MB {what}" for size, what in parts)


def glimpse(
    session: Session, prepared: FineTuneInputs, settings: Settings, run_settings: RunSettings
) -> Glimpse:
    """Evaluate the held-out texts or prompts, and generate answers."""
    judged = judge_held_out(session, prepared, settings.course.batch)
    answers: list[list[int]] = []
    if prepared.questions and run_settings.sampling.tokens:
        ends = end_tokens(prepared.tokenizer, settings.model)
        answers = complete(session, prepared.questions, run_settings.sampling, ends)
    both = zip(prepared.questions, answers, strict=False)
    return Glimpse(judged, [answer_text(prepared.tokenizer, *ids) for ids in both])


def _check_unused(out: Path) -> None:
    if (out / SETTINGS).exists():
        raise FinetuneError(
            f"{out} holds a fine-tuning; --resume continues it, another --out starts a new one"
        )


def _trainer(
    settings: Settings, prepared: FineTuneInputs, out: Path, run_settings: RunSettings
) -> Trainer:
    """Compile the program, or open the training's existing one."""
    artifact, options = out / "artifact", settings.options
    if run_settings.resume and artifact.is_dir():
        return load(artifact)
    run_settings.say(
        f"compiling: scheme {options.scheme}, {settings.course.batch} x {settings.course.length}"
    )
    options = options.replaced(
        outputs=settings.course.method.outputs, noise=_noise(prepared.model, settings)
    )
    graph, entries = prepared.graph, prepared.entries
    with run_settings.compiling() as progress:
        return compile(
            graph, None, options=options, entries=entries, folder=artifact, progress=progress
        )


def _noise(model: CausalLM, settings: Settings) -> EmbeddingNoise | None:
    alpha = settings.course.neftune
    if alpha is None:
        return None
    table = model.module.get_input_embeddings().weight
    names = (name for name, param in model.module.named_parameters() if param is table)
    return EmbeddingNoise(next(names), alpha)


def _set_reference(
    trainer: Trainer,
    prepared: FineTuneInputs,
    settings: Settings,
    out: Path,
    run_settings: RunSettings,
) -> None:
    """Give each row its scores before training; a resumed training reads the stored ones."""
    rows = [part for part in (prepared.training, prepared.held_out) if part is not None]
    place = out / REFERENCE_SCORES
    if run_settings.resume and place.is_file():
        read_reference(place, rows)
        return
    run_settings.say(f"computing the reference of {sum(part.rows for part in rows):,} rows")
    with trainer.session(run_settings.threads) as session:
        for part in rows:
            set_reference(session, part, settings.course.batch)
    keep_reference(place, rows)


def _before(
    trainer: Trainer,
    prepared: FineTuneInputs,
    settings: Settings,
    out: Path,
    run_settings: RunSettings,
) -> Glimpse:
    """Evaluate the model before the first step.

    A resumed training reads the stored result if it was asked the same.
    """
    place, asked = out / BEFORE, _asked(prepared, run_settings.sampling)
    facts = _read_facts(place) if run_settings.resume else {}
    if facts.get("asked") == asked:
        found = Glimpse(score_of(facts), facts["answers"])
    else:
        with trainer.session(run_settings.threads) as session:
            found = glimpse(session, prepared, settings, run_settings)
        write_text_whole(place, json.dumps({**found.facts(), "asked": asked}, indent=1) + "\n")
    if found.score is not None:
        run_settings.say(f"before: {found.score}")
    return found


def _read_facts(path: Path) -> Mapping[str, Any]:
    """Return a stored result; empty if it is missing or damaged."""
    try:
        facts: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _asked(prepared: FineTuneInputs, sampling: Sampling) -> str:
    """Return a digest of what an evaluation reads: held-out texts, questions and sampling."""
    judged = prepared.held_out
    arrays = {} if judged is None else judged.arrays
    prompts = () if prepared.prompts is None else prepared.prompts.judging
    asked = (prepared.questions, [list(prompt.ids) for prompt in prompts], sampling)
    digest = hashlib.sha256(repr(asked).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name}{array.shape}".encode() + array.tobytes())
    return digest.hexdigest()


def _rollouts(
    settings: Settings, prepared: FineTuneInputs, run_settings: RunSettings
) -> Rollouts | None:
    if prepared.prompts is None:
        return None
    course = settings.course
    return Rollouts(
        *(prepared.prompts, prepared.tokenizer),
        batch=course.batch,
        length=course.length,
        say=run_settings.say,
    )


def _steps(settings: Settings, prepared: FineTuneInputs) -> int:
    """Return the number of the last step; FinetuneError if a training could not take it."""
    course, rows, prompts = settings.course, prepared.training.rows, prepared.prompts
    answers = rows if prompts is None else len(prompts.training) * prompts.drawing.group
    if answers < course.batch:
        raise FinetuneError(
            f"the texts make {rows} rows of {course.length} tokens, and a batch has "
            f"{course.batch}; give more texts, or a smaller --batch"
        )
    steps = course.steps or (course.epochs or 1) * (answers // course.batch)
    updates = -(-steps // settings.options.micro_batches)
    if course.schedule != "constant" and course.warmup >= updates:
        raise FinetuneError(
            f"--warmup is {course.warmup}, and the training has {updates} updates; give a smaller "
            "--warmup, or more --steps or --epochs"
        )
    return steps


def _fit(
    settings: Settings,
    prepared: FineTuneInputs,
    trainer: Trainer,
    out: Path,
    run_settings: RunSettings,
    watch: HeldOut,
    drawn: Rollouts | None,
) -> History:
    course = settings.course
    rows, steps = prepared.training, _steps(settings, prepared)
    console = PlainConsole(_WIDTH)
    unit = Unit("tokens", rows.tokens / rows.rows) if drawn is None else Unit("answers")
    bar = (Bar(console, steps, unit),)
    read = trainer.artifact.entries["train"].inputs
    arrays = {name: array for name, array in rows.arrays.items() if name in read}
    return trainer.fit(
        arrays if drawn is None else drawn,
        epochs=None if course.steps else course.epochs,
        steps=course.steps,
        lr=settings.rate,
        schedule=course.schedule,
        warmup=course.warmup,
        seed=course.seed,
        callbacks=(
            *([drawn] if drawn else []),
            watch,
            Estimate(steps, run_settings.say),
            *run_settings.callbacks,
            *(bar if console.is_terminal else ()),
        ),
        checkpoint=Checkpoints(out / "checkpoints", run_settings.save_every),
        resume=run_settings.resume,
        threads=run_settings.threads,
        progress=False,
    )


def _write(
    prepared: FineTuneInputs, session: Session, out: Path, run_settings: RunSettings
) -> list[Path]:
    """Write adapters, if any, and the merged model."""
    model, graph, written = prepared.model, prepared.graph, []
    if session.artifact.adapters:
        say = run_settings.say
        written += write_adapters(model, graph, session, folder=out / ADAPTER, say=say)
    if run_settings.merge:
        written.append(out / "merged")
        write_merged(model, graph, session, written[-1])
    return written
