"""The studies use only public names of the package, and one of them runs."""

import ast
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import pockengine
from pockengine import Storage
from pockengine.finetune.task import Task
from pockengine.studies.course import SEEDS, Course
from pockengine.studies.states.study import outcome_of
from pockengine.tests.finetune.tiny import digits, tiny_subject, tiny_tuning

STUDIES = Path(__file__).parents[1]
PLACES = pockengine._PLACES  # defining module of each public name
INTERNAL = {"cli", "tests"}
"""Folders that studies must not import from."""


def imported() -> Iterator[tuple[str, str, str]]:
    """Yield file, module and name of each name that a study imports from the package."""
    for path in sorted(STUDIES.rglob("*.py")):
        if path.is_relative_to(STUDIES / "tests"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pockengine"):
                yield from ((str(path), str(node.module), alias.name) for alias in node.names)


def defined(module: str) -> set[str]:
    """Return the top-level names of a module, parsed as text: importing it may need a framework."""
    place = STUDIES.parent.joinpath(*module.split(".")[1:])
    source = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    names: set[str] = set()
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            names |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return names


def test_studies_import_public_names_alone() -> None:
    names = [one for one in imported() if not one[1].startswith("pockengine.studies")]
    assert len(names) > 100
    for path, module, name in names:
        where, parts = f"{path}: {module}.{name}", [*module.split("."), name]
        assert not any(part.startswith("_") and part != "__version__" for part in parts), where
        assert not INTERNAL & set(parts), where
        if module == "pockengine":
            assert name in PLACES or name == "__version__", where
        else:
            assert name in defined(module), f"{where} does not exist"
            assert PLACES.get(name) != module, f"{where}: import it from pockengine"


def test_a_study_trains_by_every_seed_and_judges() -> None:
    task = Task("digits", 10, tiny_tuning(240), digits(400).take(np.arange(240, 400)))
    subject = (tiny_subject().graph, task)
    outcome = outcome_of(Storage(), 0.01, subject, Course("full", epochs=4, threads=1))
    assert len(outcome.accuracies) == len(SEEDS)
    assert min(outcome.accuracies) > 0.5
    assert outcome.states_bytes == 2 * outcome.weights_bytes
