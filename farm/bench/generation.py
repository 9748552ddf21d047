"""`--suite=generation`: a decoder answers a prompt, by transformers and by ours.

Both take the likeliest token each time, from the same weights, and must choose the same tokens;
otherwise ours is not timed. Then they take turns: at the prompt up to its first token, and at the
tokens after a prompt that is in the cache. With weights in few bits transformers has, in f32, the
numbers that they decode to; llama.cpp takes part if it is installed and can run the model.
"""

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path

from pockengine.backends.artifact import Artifact, write_artifact
from pockengine.backends.registry import backend_for
from pockengine.compiler.compile import compile_entries
from pockengine.compiler.ir.types import F32
from pockengine.compiler.passes.forward.store_weights import StoreWeights
from pockengine.devices import find_device
from pockengine.errors import FarmError, ImportModelError
from pockengine.farm.bench.llm import BYTES, TORCH
from pockengine.farm.bench.llm_case import LmCase, make_lm_case
from pockengine.farm.load import free_bytes, watching
from pockengine.farm.progress import step
from pockengine.farm.references.engines import LLAMA_CPP, LM_OWN, Engine, find_lm_engine
from pockengine.farm.references.lm_job import LmData, LmJob, write_lm_job
from pockengine.farm.references.timing import Timing, interleave
from pockengine.farm.references.worker import Worker, open_lm_worker, why_missing
from pockengine.models.decoding import decoding_graphs
from pockengine.models.gguf_model import TYPES, write_gguf_model
from pockengine.options import CompileOptions

PROMPT, ANSWER = "prompt", "answer"
"""What a worker is timed at."""
PROMPTS, ANSWERS = 2, 1
"""Steps of a turn."""


@dataclass(frozen=True)
class GenerationMeasurement:
    """A model, listed or in a folder, the tokens of its prompt and answer, and the rounds.

    `storage` is the type of frozen weights, one of STORAGES.
    """

    model: str
    prompt: int
    answer: int
    threads: int
    rounds: int
    storage: str = "f32"

    @property
    def title(self) -> str:
        """The model, the prompt and the weights."""
        return f"{self.model}, {self.prompt} tokens, {self.storage}"


@dataclass(frozen=True)
class GenerationLine:
    """An engine's times: of the prompt up to its first token, and of each token after it."""

    engine: str
    version: str
    prompt: Timing
    token: Timing


@dataclass(frozen=True)
class GenerationResult:
    """The lines of one model and prompt, the reference first; `absent`: which engine, and why."""

    model: str
    prompt: int
    answer: int
    lines: tuple[GenerationLine, ...]
    busy: str | None = None
    absent: str | None = None


@dataclass(frozen=True)
class _Opened:
    """An engine, and what its worker opens; the job's own model if that is empty."""

    engine: Engine
    opens: str = ""


def measure_generation(measurement: GenerationMeasurement, folder: Path) -> GenerationResult:
    """Measure one model; FarmError if transformers is missing or the tokens differ."""
    transformers = find_lm_engine(TORCH)
    reason = why_missing(transformers)
    if reason:
        raise FarmError(reason)
    title, threads = measurement.title, measurement.threads
    with step(f"{title}: compile"):
        case = make_lm_case(measurement.model, (1, measurement.prompt), 1, folder / "model")
        artifact = _compiled(case, measurement, folder / "compiled")
        reference, peer = case.folder, _llama_cpp(case, measurement, folder / "model.gguf")
        if measurement.storage != F32.value:
            reference = case.decoded(artifact, folder / "decoded")
    own = Engine(LM_OWN, dtype=measurement.storage)
    opened = [_Opened(transformers), *peer.opened, _Opened(own, str(artifact.folder))]
    _check_memory(case, len(opened))
    jobs = _jobs(case, reference, measurement, folder)
    with contextlib.ExitStack() as stack:
        workers: dict[tuple[str, str], Worker] = {}
        for each in opened:
            with step(f"{title}: {each.engine.name}"):
                for phase, job in jobs.items():
                    worker = open_lm_worker(each.engine, job, threads, each.opens)
                    workers[each.engine.name, phase] = stack.enter_context(worker)
        _check_tokens(workers)
        with watching() as load, step(f"{title}: in turn"):
            lines = _in_turn(workers, measurement)
    sizes = case.name, measurement.prompt, measurement.answer
    return GenerationResult(*sizes, lines, busy=load.mark, absent=peer.absent)


def _in_turn(
    workers: dict[tuple[str, str], Worker], measurement: GenerationMeasurement
) -> tuple[GenerationLine, ...]:
    times = interleave(
        {f"{engine} {phase}": worker for (engine, phase), worker in workers.items()},
        measurement.rounds,
        {f"{e} {phase}": PROMPTS if phase == PROMPT else ANSWERS for e, phase in workers},
    )
    return tuple(
        GenerationLine(
            engine,
            worker.version,
            times[f"{engine} {PROMPT}"],
            _each(times[f"{engine} {ANSWER}"], measurement.answer),
        )
        for (engine, phase), worker in workers.items()
        if phase == PROMPT
    )


@dataclass(frozen=True)
class _Peer:
    """An engine that may be missing."""

    opened: tuple[_Opened, ...] = ()
    absent: str | None = None


def _llama_cpp(case: LmCase, measurement: GenerationMeasurement, file: Path) -> _Peer:
    """Write the model's GGUF file for llama.cpp, if that is installed and knows the family."""
    engine = Engine(LLAMA_CPP, dtype=measurement.storage)
    reason = why_missing(engine)
    if reason:
        return _Peer(absent=f"{LLAMA_CPP.name}: {reason}")
    try:
        weights = case.model.file_weights()
        config = case.model.module.config
        write_gguf_model(file, config, weights, TYPES[measurement.storage])
    except ImportModelError as error:
        return _Peer(absent=f"{LLAMA_CPP.name}: {error}")
    return _Peer((_Opened(engine, str(file)),))


def _check_memory(case: LmCase, engines: int) -> None:
    """Raise FarmError if the workers, each with f32 weights, would not fit into memory."""
    needed, free = engines * len((PROMPT, ANSWER)) * BYTES * case.parameters, free_bytes()
    if needed > free:
        raise FarmError(
            f"the weights of all workers take {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are "
            "free; use a smaller model"
        )


def _compiled(case: LmCase, measurement: GenerationMeasurement, place: Path) -> Artifact:
    """Compile the entries that generate, with frozen weights as stored."""
    positions = measurement.prompt + measurement.answer
    if case.model.longest is not None and positions > case.model.longest:
        raise FarmError(
            f"{case.name} has positions for {case.model.longest} tokens, and a prompt of "
            f"{measurement.prompt} with its answer takes {positions}; use a shorter --tokens"
        )
    graphs = decoding_graphs(case.model.module, positions, case.graph)
    if measurement.storage != F32.value:
        for graph in graphs.values():
            caches = frozenset(graph.params) - frozenset(case.graph.params)
            StoreWeights(measurement.storage, caches).run(graph)
    backend = backend_for(find_device("host"), CompileOptions())
    program = compile_entries("decoder", graphs, target=backend.target())
    return write_artifact(program, backend, place)


def _jobs(
    case: LmCase, reference: Path, measurement: GenerationMeasurement, folder: Path
) -> dict[str, Path]:
    """Write a job for each phase; transformers reads the weights of `reference`."""
    answers = {PROMPT: LmJob(str(reference.resolve()), 0.0, answer=1)}
    answers[ANSWER] = replace(answers[PROMPT], answer=measurement.answer, cached=True)
    for phase, job in answers.items():
        write_lm_job(folder / phase, LmData(job, case.tokens))
    return {phase: folder / phase for phase in answers}


def _check_tokens(workers: dict[tuple[str, str], Worker]) -> None:
    """Raise FarmError if our tokens are not those of transformers.

    llama.cpp rounds the rows that meet weights in few bits, and its tokens may differ.
    """
    for phase in (PROMPT, ANSWER):
        answers = [w.predict().tolist() for (_, each), w in workers.items() if each == phase]
        expected, found = answers[0], answers[-1]
        if found != expected:
            place = next(i for i, (a, b) in enumerate(zip(found, expected, strict=True)) if a != b)
            raise FarmError(
                f"token {place} of the answer is {found[place]}, and {expected[place]} by "
                f"transformers: wrong tokens have no speed"
            )


def _each(timing: Timing, tokens: int) -> Timing:
    """Return the times of a token, from those of an answer."""
    return Timing.of([ms / tokens for ms in timing.values])
