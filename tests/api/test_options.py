"""One options object: its fields are keywords, command-line options, and arguments."""

from dataclasses import fields
from typing import Any, get_type_hints

import numpy as np
import pytest

import pockengine
from pockengine.backends.training.options import FitKeywords, FitOptions
from pockengine.compiler.ir import F32, Builder, Graph, TensorType
from pockengine.compiler.optim import Adam, Sgd
from pockengine.errors import ArgumentError
from pockengine.options import CompileKeywords, CompileOptions


def squares() -> Graph:
    """Return a graph whose loss is the mean square of a product."""
    g = Builder(Graph("squares"))
    x = g.input("x", TensorType(F32, (4, 3)))
    w = g.param("w", np.ones((3, 2), np.float32))
    g.output("loss", g.reduce_mean(g.square(g.matmul(x, w)), axes=(0, 1), keepdims=False))
    return g.graph


@pytest.mark.parametrize(
    ("options", "keywords", "made"),
    [(CompileOptions, CompileKeywords, {"integers"}), (FitOptions, FitKeywords, set())],
)
def test_each_field_is_a_keyword(options: Any, keywords: Any, made: set[str]) -> None:
    expected = {part.name for part in fields(options)} - made
    assert set(get_type_hints(keywords)) == expected


def test_keywords_override_options() -> None:
    options = pockengine.CompileOptions(scheme="bias-only", optimizer=Adam(), memory_budget=4096)
    assert options.replaced(scheme="full").scheme == "full"
    assert options.replaced(scheme="full").optimizer == Adam()
    assert options.replaced(memory_budget=None).memory_budget is None
    assert options.replaced(optimizer=None).optimizer == Adam()
    assert CompileOptions().optimizer == Sgd()


def test_optimizers_have_names_after_options_are_made() -> None:
    options = pockengine.CompileOptions(optimizer="adam")
    assert str(options.replaced(optimizer="sgd").optimizer) == "sgd"
    compiled = pockengine.compile(squares(), (), options=options)
    assert len(compiled.artifact.params) > 1  # moments beside the weight


def test_options_and_keywords_compile_equally() -> None:
    options = pockengine.CompileOptions(optimizer=Adam(), scheme="full")
    by_options = pockengine.compile(squares(), (), options=options)
    by_keywords = pockengine.compile(squares(), (), optimizer=Adam(), scheme="full")
    code = [made.artifact.folder / "code" / "program.c" for made in (by_options, by_keywords)]
    assert code[0].read_text() == code[1].read_text()


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"schem": "full"}, "compile has no option 'schem'; did you mean scheme"),
        ({"unheard_of": 1}, "compile has no option 'unheard_of'; it has backend, "),
        ({"integers": None}, "compile has no option 'integers'"),
        ({"memory_budget": "4 KB"}, "compile: memory_budget must be int | None, not str"),
        ({"scheme": "a\0b"}, "compile: scheme holds a NUL character"),
    ],
)
def test_a_wrong_keyword_is_reported(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message.replace("|", r"\|")):
        pockengine.compile(squares(), (), **keywords)


def test_fit_accepts_options_and_keywords() -> None:
    compiled = pockengine.compile(squares(), ())
    rows = {"x": np.ones((8, 3), np.float32)}
    options = pockengine.FitOptions(steps=2, lr=0.1, progress=False)
    assert len(compiled.fit(rows, options=options, steps=3).steps) == 3
    with pytest.raises(ArgumentError, match="fit has no option 'epoch'; did you mean epochs"):
        compiled.fit(rows, epoch=1)  # type: ignore[call-arg]
