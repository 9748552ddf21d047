"""The new head is trained first, alone; every scheme starts from it.

A random head needs a rate at which a pretrained net without norms diverges, so full training would
look worse than it is (linear probing, then fine-tuning: arXiv 2202.10054). The head's rate is
chosen on the validation part; its run uses no seed of the study.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file
from torch import nn

from pockengine.backends.registry import open_session
from pockengine.compiler.ir.clone import clone
from pockengine.compiler.sparse import preset
from pockengine.files import place_once
from pockengine.finetune.recipe import Recipe
from pockengine.finetune.subject import Subject
from pockengine.finetune.task import Tuning
from pockengine.finetune.trial import compiled, train_examples
from pockengine.finetune.verdict import logits_of
from pockengine.frontends.torch.model import to_state_dict
from pockengine.studies.sparse.desk import Desk, LoadedPair
from pockengine.studies.sparse.journal import digest

SEED = 1000
"""Seed of the data order: none of the study's seeds."""

_FILE = "head.safetensors"


def with_trained_head(desk: Desk, table: LoadedPair) -> LoadedPair:
    """Return the table with the trained head in its subject; the head is cached."""
    subject, tuning, model = table.subject, table.task.tuning, table.model
    recipes = [
        Recipe(rate, table.effort.epochs, SEED, model.optimizer) for rate in model.head_rates
    ]
    parts = (subject.digest(), tuning.train.digest(), tuning.validation.digest(), repr(recipes))
    cache = desk.places.cache
    folder = cache / "heads" / digest("\n".join(parts))

    def make(place: Path) -> None:
        desk.tell(f"{table.pair}: training the head")
        with ThreadPoolExecutor(2) as pool:  # compiled code runs without Python's lock
            candidates = list(
                pool.map(lambda recipe: train_head(subject, tuning, recipe, cache), recipes)
            )
        _, head = max(candidates, key=lambda each: each[0])
        save_file(head, place / _FILE)

    head = load_file(place_once(folder, make) / _FILE)
    return replace(table, subject=with_arrays(subject, head), load=lambda: _loaded(table, head))


def train_head(
    subject: Subject, tuning: Tuning, recipe: Recipe, folder: Path
) -> tuple[float, dict[str, np.ndarray]]:
    """Train the head alone; return its accuracy on validation, and its arrays by name."""
    scheme = preset("head-only", subject.graph)
    with open_session(compiled(subject, scheme, recipe.optimizer, folder), threads=1) as session:
        train_examples(session, recipe, tuning.train, subject.batch)
        logits = logits_of(session, tuning.validation, subject.logits)
        head = {name: session.get_param(name) for name in scheme.resolve(subject.graph)}
    return float((logits.argmax(1) == tuning.validation.labels).mean()), head


def with_arrays(subject: Subject, arrays: dict[str, np.ndarray]) -> Subject:
    """Return the subject with these params replaced."""
    graph = clone(subject.graph)
    for name, array in arrays.items():
        graph.params[name].data = array
    return Subject(subject.name, graph, subject.logits)


def _loaded(table: LoadedPair, head: dict[str, np.ndarray]) -> nn.Module:
    """Return a fresh module with the trained head."""
    module = table.load()
    module.load_state_dict(to_state_dict(table.subject.graph, head), strict=False)
    return module
