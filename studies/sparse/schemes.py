"""The fixed schemes of every pair, besides the searched one."""

from pockengine.compiler.ir import Graph
from pockengine.compiler.sparse import Scheme, preset
from pockengine.studies.sparse.subjects import Model

FULL, HEAD, SPARSE, LORA, SEARCHED = "full", "head-only", "sparse", "lora-8", "searched"


def fixed_schemes(model: Model, graph: Graph) -> tuple[Scheme, ...]:
    """Return the presets for a model; LoRA only for text."""
    names = [FULL, "bias-only", HEAD, f"last-{model.last}-blocks", SPARSE]
    if model.text:
        names.append(LORA)
    return tuple(preset(name, graph) for name in names)
