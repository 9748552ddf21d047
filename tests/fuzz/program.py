"""Random programs as readable text: generation, and shrinking of a failing one.

A program is a Python function of a few leaves (trained weights and inputs) that returns a scalar.
It is generated statement by statement from a language's templates. Each statement runs in the
framework immediately, and is dropped unless the framework accepts it and its numbers are finite.
"""

import random
import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

HOLE = re.compile(r"{(\w+)}")
CONSTANTS = ("0.5", "-1.0", "2.0", "0.0", "1.0", "0.3", "-0.7", "3.0")
WHOLE = ("0", "1", "2", "3", "-1", "-2", "5")
SLICES = ("1:", ":2", "::2", "0", "-1", "...", "1", ":-1", "None", ":, 1", ":, :2", "..., 0", "1:3")
SHAPES = ((4, 3), (4, 3), (4, 3), (3,), (4, 1), (3, 4), (2, 4, 3), (4,), (4, 4))
LARGEST = 1e3
"""Programs with larger numbers are dropped, because these absorb smaller summands."""
TRIES = 60
"""Number of statements that may fail in the framework before a program is abandoned."""


@dataclass(frozen=True)
class Leaf:
    """An argument of a program; a trained one is a float."""

    data: np.ndarray
    trained: bool = False


@dataclass(frozen=True)
class Program:
    """The statements, and the terms whose sum is returned."""

    seed: int
    leaves: Mapping[str, Leaf]
    body: tuple[str, ...]
    terms: tuple[str, ...]

    @property
    def trained(self) -> list[str]:
        """Return the names of the trained leaves."""
        return [name for name, leaf in self.leaves.items() if leaf.trained]

    def source(self, name: str = "program") -> str:
        """Return the program as a Python function."""
        lines = [line for statement in self.body for line in statement.splitlines()]
        terms = " + ".join(self.terms)
        return "\n    ".join([f"def {name}({', '.join(self.leaves)}):", *lines, f"return {terms}"])

    def snippet(self, heading: str) -> str:
        """Return a script that creates the leaves and calls the program."""
        leaves = [f"{name} = {_literal(leaf.data)}" for name, leaf in self.leaves.items()]
        head = [heading, f"# seed {self.seed}; trained: {', '.join(self.trained)}", *leaves]
        return "\n".join([*head, self.source(), f"print(program({', '.join(self.leaves)}))"])

    def function(self, namespace: Mapping[str, Any], source: str | None = None) -> Any:
        """Compile the text to a Python function in this namespace."""
        scope = dict(namespace)
        exec(compile(source or self.source(), f"<program {self.seed}>", "exec"), scope)
        return scope["program"]


def _literal(data: np.ndarray) -> str:
    """Write an array so that it is parsed back exactly."""
    return f"np.array({data.tolist()}, np.{data.dtype})"


class Language(Protocol):
    """One framework: its templates, and how it runs a statement during generation."""

    templates: Sequence[str]
    """Statements with holes: {f} {i} {b} a float, integer or boolean value, {m} one that may be
    overwritten, {new} a new name, {c} {k} {d} {s} {p} a number, integer, dimension, slice or shape.
    """

    sums: Sequence[str]
    """Expressions that reduce a value to a scalar; every trained leaf uses the last, a mean."""

    def start(self, leaves: Mapping[str, Leaf]) -> dict[str, Any]:
        """Return the values of the leaves by name."""

    def step(self, statement: str, values: dict[str, Any]) -> dict[str, Any]:
        """Return all values after a statement; any exception drops the statement."""

    def kind(self, value: Any) -> str:
        """Return "f", "i", "b", or "" for a value that fits no hole."""

    def finite(self, value: Any) -> bool:
        """Return whether all numbers are finite and not too large."""


def draw(language: Language, seed: int, size: int) -> Program:
    """Draw a program of up to `size` statements."""
    rng = random.Random(seed)
    leaves = draw_leaves(np.random.default_rng(seed))
    values = language.start(leaves)
    body: list[str] = []
    pure: set[int] = set()
    for _ in range(TRIES):
        if len(body) == size:
            break
        template = rng.choice(language.templates)
        statement = _filled(language, template, rng, values, len(body))
        if statement is None:
            continue
        try:
            after = language.step(statement, values)
        except Exception:  # a framework may raise anything for a statement that it does not support
            values = _again(language, leaves, body)
            continue
        if all(language.finite(value) for value in after.values()):
            values = after
            pure |= set() if "{m}" in template else {len(body)}
            body.append(statement)
        else:
            values = _again(language, leaves, body)
    terms = _terms(language, rng, leaves, values)
    return without_dead(Program(seed, leaves, tuple(body), terms), pure)


def without_dead(program: Program, pure: Set[int]) -> Program:
    """Drop unused inputs, and unused statements without side effects."""
    selected: list[str] = []
    read = " ".join(program.terms)
    for index in reversed(range(len(program.body))):
        if index not in pure or re.search(rf"\ba{index}\b", read):
            selected.append(program.body[index])
            read += f" {program.body[index]}"
    leaves = {
        name: leaf for name, leaf in program.leaves.items() if re.search(rf"\b{name}\b", read)
    }
    return replace(program, leaves=leaves, body=tuple(reversed(selected)))


def _again(language: Language, leaves: Mapping[str, Leaf], body: Sequence[str]) -> dict[str, Any]:
    """Run the statements again, because a dropped one may have written in place."""
    values = language.start(leaves)
    for statement in body:
        values = language.step(statement, values)
    return values


def draw_leaves(rng: np.random.Generator) -> dict[str, Leaf]:
    """Draw one or two weights, floats, integers and a mask, with ties and zeros among them."""

    def floats() -> np.ndarray:
        shape = SHAPES[rng.integers(len(SHAPES))]
        ties = rng.integers(-3, 4, shape) / 2
        return np.where(rng.random(shape) < 0.3, ties, rng.normal(size=shape)).astype(np.float32)

    leaves = {"w": Leaf(floats(), True)}
    if rng.random() < 0.5:
        leaves["v"] = Leaf(floats(), True)
    leaves["x"] = Leaf(floats())
    if rng.random() < 0.6:
        shape = SHAPES[rng.integers(len(SHAPES))]
        leaves["i"] = Leaf(rng.integers(0, 3, shape))
    if rng.random() < 0.4:
        shape = SHAPES[rng.integers(len(SHAPES))]
        leaves["m"] = Leaf(rng.random(shape) < 0.5)
    return leaves


def _filled(
    language: Language, template: str, rng: random.Random, values: Mapping[str, Any], number: int
) -> str | None:
    """Fill the holes of a template; return None if no value fits one."""
    kinds: dict[str, list[str]] = {"f": [], "i": [], "b": [], "m": []}
    for name, value in values.items():
        kind = language.kind(value)
        if kind:
            kinds[kind].append(name)
        if kind and name[0] in "ab":
            kinds["m"].append(name)
    last: list[str] = []

    def fill(match: re.Match[str]) -> str:
        hole = match.group(1)
        if hole == "new":
            return f"a{number}"
        if hole in ("f", "i", "b", "m"):
            name = _choose(rng, kinds[hole], values, last)
            last.append(name)
            return name
        pool = {"c": CONSTANTS, "k": WHOLE, "d": ("0", "1", "-1", "-2"), "s": SLICES}.get(hole)
        return rng.choice(pool) if pool else repr(rng.choice(SHAPES))

    try:
        return HOLE.sub(fill, template)
    except LookupError:
        return None


def _choose(
    rng: random.Random, names: list[str], values: Mapping[str, Any], last: list[str]
) -> str:
    """Choose a value; prefer late values, and values of the previously chosen shape."""
    alike = [name for name in names if last and values[name].shape == values[last[-1]].shape]
    if alike and rng.random() < 0.5:
        return rng.choice(alike)
    return rng.choice(names[-3:] if rng.random() < 0.6 else names)


def _terms(
    language: Language,
    rng: random.Random,
    leaves: Mapping[str, Leaf],
    values: Mapping[str, Any],
) -> tuple[str, ...]:
    """Return a sum that includes the trained leaves and the last values."""
    floats = [name for name in values if name not in leaves and language.kind(values[name]) == "f"]
    terms = [rng.choice(language.sums).format(name) for name in floats[-3:]]
    trained = (name for name, leaf in leaves.items() if leaf.trained)
    return (*terms, *(language.sums[-1].format(name) for name in trained))


def shrink(program: Program, fails: Callable[[Program], bool]) -> Program:
    """Drop statements and terms, from the end, while the program still fails."""
    changed = True
    while changed:
        changed = False
        for shorter in _shorter(program):
            if fails(shorter):
                program, changed = shorter, True
                break
    return program


def _shorter(program: Program) -> list[Program]:
    """Return the program without one term, statement or leaf; the last terms are the weights'."""
    body, terms = program.body, program.terms
    trained = program.trained
    own = terms[: len(terms) - len(trained)]
    found = [
        replace(program, terms=terms[:i] + terms[i + 1 :])
        for i in range(len(own) if len(own) > 1 else 0)
    ]
    found += [replace(program, body=body[:i] + body[i + 1 :]) for i in reversed(range(len(body)))]
    used = " ".join((*body, *own))
    for name in program.leaves:
        if re.search(rf"\b{name}\b", used) or trained == [name]:
            continue
        leaves = {key: held for key, held in program.leaves.items() if key != name}
        remaining = [t for key, t in zip(trained, terms[len(own) :], strict=True) if key != name]
        found.append(replace(program, leaves=leaves, terms=(*own, *remaining)))
    return found
