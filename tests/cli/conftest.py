"""Commands import a listed model once in a process: most tests name the same one."""

from collections.abc import Iterator
from typing import Any

import pytest

from pockengine.compiler.ir import Graph
from pockengine.compiler.ir.clone import clone
from pockengine.models.find import Found
from pockengine.models.registry import FAMILIES


@pytest.fixture(autouse=True, scope="session")
def _graphs() -> Iterator[None]:
    imported, known = Found.graph, dict[Any, Graph]()

    def graph(found: Found) -> Graph:
        if found.name.partition("-")[0] not in FAMILIES:
            return imported(found)
        key = _facts(found)
        if key not in known:
            known[key] = imported(found)
        return clone(known[key])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Found, "graph", graph)
        yield


def _facts(found: Found) -> Any:
    """Return all that the graph of a listed model depends on."""
    parts = [(name, type(part), part.training) for name, part in found.model.named_modules()]
    tensors = [(n, x.shape, x.numpy().tobytes()) for n, x in found.model.state_dict().items()]
    inputs = [(name, x.shape) for name, x in found.inputs.items()]
    return found.name, found.loss, *map(tuple, (parts, tensors, inputs))
