"""`--suite=generation`: a decoder answers a prompt, by transformers and by ours.

Both take the likeliest token each time, from the same weights, and must choose the same tokens;
otherwise ours is not timed. Then they take turns: at the prompt up to its first token, and at the
tokens after a prompt that is in the cache.
"""

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path

from pockengine.backends.artifact import write_artifact
from pockengine.backends.registry import backend_for
from pockengine.compiler.compile import compile_entries
from pockengine.devices import find_device
from pockengine.errors import FarmError
from pockengine.farm.bench.llm import BYTES, OURS, TORCH, free_bytes
from pockengine.farm.bench.llm_case import LmCase, make_lm_case
from pockengine.farm.load import watching
from pockengine.farm.progress import step
from pockengine.farm.references.lm_job import LmData, LmJob, write_lm_job
from pockengine.farm.references.timing import Timing, interleave
from pockengine.farm.references.worker import (
    LM_OWN,
    LM_TORCH,
    Worker,
    open_lm_worker,
    why_lm_missing,
)
from pockengine.models.decoding import decoding_graphs
from pockengine.options import CompileOptions

PROMPT, ANSWER = "prompt", "answer"
"""What a worker is timed at."""
MODULES = {TORCH: LM_TORCH, OURS: LM_OWN}
PROMPTS, ANSWERS = 2, 1
"""Steps of a turn."""


@dataclass(frozen=True)
class GenerationMeasurement:
    """A model, listed or in a folder, the tokens of its prompt and answer, and the rounds."""

    model: str
    prompt: int
    answer: int
    threads: int
    rounds: int


@dataclass(frozen=True)
class GenerationLine:
    """An engine's times: of the prompt up to its first token, and of each token after it."""

    engine: str
    version: str
    prompt: Timing
    token: Timing


@dataclass(frozen=True)
class GenerationResult:
    """The lines of one model and prompt, the reference first."""

    model: str
    prompt: int
    answer: int
    lines: tuple[GenerationLine, ...]
    busy: str | None = None


def measure_generation(measurement: GenerationMeasurement, folder: Path) -> GenerationResult:
    """Measure one model; FarmError if transformers is missing or the tokens differ."""
    reason = why_lm_missing(TORCH, adapters=False)
    if reason:
        raise FarmError(reason)
    title, threads = f"{measurement.model}, {measurement.prompt} tokens", measurement.threads
    with step(f"{title}: compile"):
        case = make_lm_case(measurement.model, (1, measurement.prompt), 1, folder / "model")
        _check_memory(case)
        opened = {TORCH: TORCH, OURS: str(_compiled(case, measurement, folder / "compiled"))}
    jobs = _jobs(case, measurement, folder)
    with contextlib.ExitStack() as stack:
        workers: dict[tuple[str, str], Worker] = {}
        for engine, module in MODULES.items():
            with step(f"{title}: {engine}"):
                for phase, job in jobs.items():
                    worker = open_lm_worker(module, job, opened[engine], threads)
                    workers[engine, phase] = stack.enter_context(worker)
        _check_tokens(workers)
        with watching() as load, step(f"{title}: in turn"):
            times = interleave(
                {f"{engine} {phase}": worker for (engine, phase), worker in workers.items()},
                measurement.rounds,
                {f"{e} {phase}": PROMPTS if phase == PROMPT else ANSWERS for e, phase in workers},
            )
        lines = tuple(
            GenerationLine(
                engine,
                workers[engine, PROMPT].version,
                times[f"{engine} {PROMPT}"],
                _each(times[f"{engine} {ANSWER}"], measurement.answer),
            )
            for engine in MODULES
        )
    return GenerationResult(
        case.name, measurement.prompt, measurement.answer, lines, busy=load.mark
    )


def _check_memory(case: LmCase) -> None:
    """Raise FarmError if the workers, each with its weights, would not fit into memory."""
    needed, free = len(MODULES) * len((PROMPT, ANSWER)) * BYTES * case.parameters, free_bytes()
    if needed > free:
        raise FarmError(
            f"the weights of all workers take {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are "
            "free; use a smaller model"
        )


def _compiled(case: LmCase, measurement: GenerationMeasurement, place: Path) -> Path:
    """Compile the entries that generate; return the artifact's folder."""
    positions = measurement.prompt + measurement.answer
    if case.model.longest is not None and positions > case.model.longest:
        raise FarmError(
            f"{case.name} has positions for {case.model.longest} tokens, and a prompt of "
            f"{measurement.prompt} with its answer takes {positions}; use a shorter --tokens"
        )
    graphs = decoding_graphs(case.model.module, positions, case.graph)
    backend = backend_for(find_device("host"), CompileOptions())
    program = compile_entries("decoder", graphs, target=backend.target())
    return write_artifact(program, backend, place).folder


def _jobs(case: LmCase, measurement: GenerationMeasurement, folder: Path) -> dict[str, Path]:
    """Write a job for each phase."""
    answers = {PROMPT: LmJob(str(case.folder.resolve()), 0.0, answer=1)}
    answers[ANSWER] = replace(answers[PROMPT], answer=measurement.answer, cached=True)
    for phase, job in answers.items():
        write_lm_job(folder / phase, LmData(job, case.tokens))
    return {phase: folder / phase for phase in answers}


def _check_tokens(workers: dict[tuple[str, str], Worker]) -> None:
    for phase in (PROMPT, ANSWER):
        expected, found = (workers[engine, phase].predict().tolist() for engine in MODULES)
        if found != expected:
            place = next(i for i, (a, b) in enumerate(zip(found, expected, strict=True)) if a != b)
            raise FarmError(
                f"token {place} of the answer is {found[place]}, and {expected[place]} by "
                f"transformers: wrong tokens have no speed"
            )


def _each(timing: Timing, tokens: int) -> Timing:
    """Return the times of a token, from those of an answer."""
    return Timing.of([ms / tokens for ms in timing.values])
