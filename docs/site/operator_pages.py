"""Reference pages of the operators that each frontend imports, from its registry.

A frontend needs its framework, and frameworks do not share a process: each page is made in its own,
by `python -m pockengine.docs.site.operator_pages NAME`.
"""

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from typing import Any

from pockengine.docs.site.gradient_flow import trains
from pockengine.docs.site.sources import ROOT
from pockengine.docs.site.tables import table

FOLDER = str(ROOT.parent)
"""Folder of the package; mkdocs removes what its hook appends to `sys.path`."""
HEAD = """# {title}

The {count} {noun} that are imported, by topic. Others are refused, with the layer that uses them.
The column "trains" says whether a gradient exists through the operator, that is, whether a path of
[ops of the IR](../ops.md) with gradient rules leads from one of its tensors to a result. Rounding
and signs have a gradient of 0. This page is generated from the rules of the frontend.
"""
MISSING = """# {title}

This page is generated from the rules of the frontend. `{package}` was not installed when the site
was built: install it, and build the site again.
"""


@dataclass(frozen=True)
class OperatorPage:
    """One page: the registries are `package.module:NAME`."""

    title: str
    noun: str
    registries: tuple[str, ...]

    def text(self) -> str:
        """Return the page, in Markdown."""
        rules = dict(self._rules())
        topics: dict[str, list[str]] = {}
        for name, rule in rules.items():
            topics.setdefault(rule.__module__, []).append(name)
        parts = [HEAD.format(title=self.title, noun=self.noun, count=len(rules))]
        for module in sorted(topics):
            parts += _topic(module, {name: rules[name] for name in sorted(topics[module])})
        return "\n".join(parts)

    def _rules(self) -> Iterator[tuple[str, Any]]:
        for registry in self.registries:
            module, _, attribute = registry.partition(":")
            found = getattr(import_module(f"pockengine.frontends.{module}"), attribute)
            for key, rule in found.items():
                yield _name(key), _function(getattr(rule, "apply", rule))


PAGES = {
    "torch": OperatorPage(
        "PyTorch operators", "ATen operators", ("torch.aten.complex:RULES", "torch.aten:RULES")
    ),
    "jax": OperatorPage("JAX primitives", "primitives of JAX", ("jax.primitives:RULES",)),
    "onnx": OperatorPage("ONNX operators", "operators of ONNX", ("onnx.ops:RULES",)),
    "tensorflow": OperatorPage(
        "TensorFlow operators",
        "operators of TensorFlow graphs, which Keras models become,",
        ("tensorflow.ops.complex:COMPLEX_RULES", "tensorflow.ops:RULES"),
    ),
    "tflite": OperatorPage(
        "TFLite operators", "operators of TFLite files", ("tensorflow.lite.registry:LITE_RULES",)
    ),
}


@cache
def operator_page(name: str) -> str:
    """Return one of PAGES; without its framework a page that names the package."""
    command = [sys.executable, "-m", "pockengine.docs.site.operator_pages", name]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [*sys.path, FOLDER]))}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the page of {name}: {done.stderr}")
    return done.stdout


def _name(key: Any) -> str:
    """Return an operator's name: without `.default`, with a domain that is not the standard's."""
    if isinstance(key, tuple):
        return ".".join(filter(None, key))
    return str(key).removesuffix(".default")


def _function(rule: Any) -> Any:
    while isinstance(rule, partial):
        rule = rule.func
    return rule


def _topic(module: str, rules: Mapping[str, Any]) -> Iterator[str]:
    """Yield a section: the operators, whether they train, what else their rules say."""
    title = inspect.cleandoc(import_module(module).__doc__ or "").split("\n\n")[0]
    yield f"## {' '.join(title.split()).rstrip('.')}\n"
    rows = [
        (f"`{name}`", "yes" if trains(rule) else "no", _meaning(rule))
        for name, rule in rules.items()
    ]
    yield table(("operator", "trains", "meaning"), rows)


def _meaning(rule: Any) -> str:
    first = inspect.cleandoc(rule.__doc__ or "").split("\n\n")[0]
    return re.sub(r"([|*<])", r"\\\1", " ".join(first.split()).rstrip("."))


def text_or_missing(name: str) -> str:
    """Return the page from within a process that may import the framework."""
    try:
        return PAGES[name].text()
    except ImportError as error:
        return MISSING.format(title=PAGES[name].title, package=error.name)


if __name__ == "__main__":
    print(text_or_missing(sys.argv[1]))
