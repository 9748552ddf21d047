"""Answers that a model samples while it trains, and their rewards: the data of GRPO.

A step samples a group of answers to each of its prompts from the model. The advantage of an answer
is its reward minus the group's mean, divided by the group's standard deviation
(Shao et al., 2024; arXiv:2402.03300).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from pockengine.backends.augmentation import AS_THEY_ARE
from pockengine.backends.session import Session
from pockengine.backends.training.batch import Batch
from pockengine.backends.training.callbacks import Callback
from pockengine.backends.training.loop import Step
from pockengine.boundary import theirs
from pockengine.errors import FinetuneError
from pockengine.finetune.lm.judging import RewardScore
from pockengine.finetune.lm.methods import RATING, Drawing
from pockengine.finetune.lm.packing import Packed, rows_of, signed_rows
from pockengine.finetune.lm.sampling import Sampling, complete
from pockengine.finetune.lm.texts import PromptExample
from pockengine.finetune.lm.tokens import Tokens, answer_text, named, question_ids
from pockengine.finetune.task import IGNORED
from pockengine.models.find import import_function
from pockengine.terminal import Say

CONTRACT = "function(line, answer) returns a number for an answer to a line of the data"
SPREAD = 1e-4
"""Added to a group's standard deviation, as TRL does."""
REPORTED = 10
"""Number of steps per printed reward."""


@dataclass(frozen=True)
class Prompt:
    """A prompt as tokens, its line number, and the fields of its line."""

    line: int
    ids: Sequence[int]
    row: Mapping[str, Any]


@dataclass(frozen=True)
class Prompts:
    """Prompts to train on and to evaluate, and the reward function."""

    training: Sequence[Prompt]
    judging: Sequence[Prompt]
    drawing: Drawing
    function: Callable[[Mapping[str, Any], str], float]

    def reward(self, tokenizer: Any, prompt: Prompt, answer: Sequence[int]) -> float:
        """Return the reward of an answer's text; FinetuneError unless it is a finite number."""
        result = theirs(self.function, prompt.row, answer_text(tokenizer, prompt.ids, answer))
        try:
            reward = float(result)
        except (TypeError, ValueError):
            reward = float("nan")
        if not isfinite(reward):
            raise FinetuneError(
                f"{self.drawing.reward} returned {result!r} for an answer to line {prompt.line}; "
                "return a finite number"
            )
        return reward


def open_prompts(
    training: Sequence[Prompt], judging: Sequence[Prompt], drawing: Drawing
) -> Prompts:
    """Import the reward function; ImportModelError if that fails."""
    return Prompts(training, judging, drawing, import_function(drawing.reward, CONTRACT))


def tokenize_prompts(
    tokenizer: Any, requests: Sequence[PromptExample], path: Path, room: int
) -> tuple[list[Prompt], list[str]]:
    """Tokenize a file's prompts; skip and report those longer than `room` tokens."""
    prompts = [
        Prompt(each.example.line, question_ids(tokenizer, each.example), each.row)
        for each in requests
    ]
    long = [each.line for each in prompts if len(each.ids) > room]
    fact = f"leave no room for an answer in a row, and are left out: line {named(long)}"
    remarks = [f"{path}: {len(long)} prompts {fact}"] if long else []
    fitting = [each for each in prompts if len(each.ids) <= room]
    if not fitting:
        raise FinetuneError(
            f"{path} leaves no prompt ({'; '.join(remarks)}); give a larger --max-length, or a "
            "smaller --answer-tokens"
        )
    return fitting, remarks


def prompt_rows(prompts: Sequence[Prompt], length: int) -> Packed:
    """Put each prompt into its own row."""
    return rows_of([[_tokens(prompt, ())] for prompt in prompts], length)


def answered_rows(
    prompts: Sequence[Prompt], answers: Sequence[Sequence[int]], length: int
) -> Packed:
    """Put each prompt with its answer into its own row."""
    pairs = zip(prompts, answers, strict=True)
    return signed_rows([[_tokens(prompt, answer)] for prompt, answer in pairs], length)


def advantages(rewards: np.ndarray) -> np.ndarray:
    """Return the advantage of each answer, from rewards (prompts, answers)."""
    spread = rewards.std(axis=1, ddof=1, keepdims=True)
    compared: np.ndarray = (rewards - rewards.mean(axis=1, keepdims=True)) / (spread + SPREAD)
    return compared


def draw_seed(seed: int, step: int) -> int:
    """Return the 32-bit seed of a step's answers, the size that generators take."""
    return int(np.random.SeedSequence((seed, step)).generate_state(1)[0])


def _tokens(prompt: Prompt, answer: Sequence[int]) -> Tokens:
    labels = [*[IGNORED] * len(prompt.ids), *answer]
    return Tokens(prompt.line, [*prompt.ids, *answer], labels)


class Rollouts(Callback):
    """Batches of `batch` sampled answers in rows of `length` tokens: a data source and a callback
    that gets the session and prints rewards.

    An answer is sampled with the weights of the step that trains on it. The same seed and step
    sample the same answer, so a resumed training equals an uninterrupted one.
    """

    rows = 0
    batch = 0
    shuffled = False
    augmentation = AS_THEY_ARE

    def __init__(self, prompts: Prompts, tokenizer: Any, batch: int, length: int, say: Say) -> None:
        self._prompts, self._tokenizer = prompts, tokenizer
        self._answers, self._length, self._say = batch, length, say
        self._session: Session | None = None
        self._rewards: list[float] = []
        self._begun = self._epoch = 0
        self.tokens = 0

    @property
    def batches(self) -> int:
        """Steps of an epoch; an incomplete last step is dropped."""
        return len(self._prompts.training) * self._prompts.drawing.group // self._answers

    def on_begin(self, session: Session) -> None:
        """Sample with this session."""
        self._session = session

    def training(self, seed: int, done: int, epochs: int | None) -> Iterator[Batch]:
        """Yield the batches after the first `done`, each sampled on demand."""
        for number in count(done):
            epoch, place = divmod(number, self.batches)
            if epochs is not None and epoch >= epochs:
                return
            if epoch != self._epoch:
                self._epoch, self._begun = epoch, len(self._rewards)
            last = place == self.batches - 1
            yield Batch(self._drawn(seed, epoch, place), self._answers, epoch, last)

    def once(self) -> Iterator[Batch]:
        """Yield nothing: evaluation judges greedy answers."""
        return iter(())

    def on_step(self, step: Step) -> None:
        """Print the mean reward, every few steps."""
        if not step.number % REPORTED:
            self._say(f"step {step.number}: {_mean(self._rewards[-REPORTED * self._answers :])}")

    def summary(self) -> str:
        """Describe the epoch's rewards."""
        return _mean(self._rewards[self._begun :])

    def _drawn(self, seed: int, epoch: int, place: int) -> dict[str, np.ndarray]:
        assert self._session is not None
        drawing, known = self._prompts.drawing, self._prompts.training
        order = np.random.default_rng((seed, epoch)).permutation(len(known))
        each_step = self._answers // drawing.group
        picked = order[place * each_step :][:each_step]
        prompts = [known[number] for number in picked for _ in range(drawing.group)]
        number = epoch * self.batches + place
        ends = _ends(self._tokenizer)
        sampling = Sampling(drawing.tokens, temperature=1.0, seed=draw_seed(seed, number))
        answers = complete(self._session, [prompt.ids for prompt in prompts], sampling, ends)
        rewards = [
            self._prompts.reward(self._tokenizer, *pair)
            for pair in zip(prompts, answers, strict=True)
        ]
        self._rewards += rewards
        ended = [[*answer, *(ends if len(answer) < drawing.tokens else ())] for answer in answers]
        packed = answered_rows(prompts, ended, self._length)
        self.tokens += packed.tokens
        compared = advantages(np.reshape(rewards, (-1, drawing.group))).astype(np.float32)
        arrays = {**packed.arrays, RATING: compared.reshape(-1)}
        read = self._session.artifact.entries["train"].inputs
        return {name: array for name, array in arrays.items() if name in read}


def _ends(tokenizer: Any) -> tuple[int, ...]:
    """Return the token that ends a sampled answer: the tokenizer's alone, as TRL does."""
    end = tokenizer.eos_token_id
    return () if end is None else (int(end),)


def _mean(rewards: Sequence[float]) -> str:
    return f"mean reward {np.mean(rewards):.4g} of {len(rewards):,} answers"


def judge_answers(session: Session, prompts: Prompts, tokenizer: Any) -> RewardScore:
    """Reward greedy answers to the evaluation prompts."""
    questions, sampling = prompts.judging, Sampling(prompts.drawing.tokens)
    answers = complete(session, [each.ids for each in questions], sampling, _ends(tokenizer))
    rewards = [prompts.reward(tokenizer, *pair) for pair in zip(questions, answers, strict=True)]
    return RewardScore(float(np.mean(rewards)), len(questions))
