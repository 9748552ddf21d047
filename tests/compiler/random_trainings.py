"""Random ways to train a graph: optimizer, scheme, gradient clipping, micro-batches."""

import numpy as np

from pockengine.compiler.ir import Graph, Value
from pockengine.compiler.ops.elementwise import STOP
from pockengine.compiler.optim import (
    Adadelta,
    Adafactor,
    Adagrad,
    Adam,
    Adamax,
    AdamW,
    Asgd,
    Groups,
    Lamb,
    Lars,
    Lion,
    Maximize,
    Muon,
    NAdam,
    Optimizer,
    RAdam,
    RMSprop,
    Rprop,
    Sgd,
    SparseAdam,
)
from pockengine.compiler.options import Training
from pockengine.compiler.passes.backward.differentiate import Clip
from pockengine.compiler.sparse import Scheme
from pockengine.compiler.sparse.scheme import FROZEN, FULL, ParamChoice, channel_axis
from pockengine.errors import SchemeError

OPTIMIZERS: tuple[Optimizer, ...] = (
    Sgd(),
    Sgd(weight_decay=0.1),
    Sgd(momentum=0.9),
    Sgd(momentum=0.9, weight_decay=0.1, nesterov=True),
    Adam(eps=1e-3, weight_decay=0.1),
    AdamW(eps=1e-3),
    RMSprop(eps=1e-2),
    RMSprop(eps=1e-2, momentum=0.5, weight_decay=0.1),
    Adagrad(eps=1e-3, lr_decay=0.1),
    Adafactor(weight_decay=0.1),
    Lion(weight_decay=0.1),
    Groups(Sgd(momentum=0.9), (("p1.*", Adam(eps=1e-3)), ("p2.*", Sgd()))),
    Sgd(momentum=0.9, weight_decay=0.1, dampening=0.5),
    Adam(eps=1e-3, weight_decay=0.1, amsgrad=True),
    AdamW(eps=1e-3, amsgrad=True),
    RMSprop(eps=1e-2, weight_decay=0.1, centered=True),
    RMSprop(eps=1e-2, momentum=0.5, centered=True),
    Adagrad(initial_accumulator_value=0.5),
    Maximize(Adam(eps=1e-3)),
    Adadelta(eps=1e-3, weight_decay=0.1),
    Adamax(eps=1e-3, weight_decay=0.1),
    Asgd(lambd=0.1, t0=1, weight_decay=0.1),
    NAdam(eps=1e-3, weight_decay=0.1),
    NAdam(eps=1e-3, weight_decay=0.1, decoupled_weight_decay=True),
    RAdam(betas=(0.5, 0.9), eps=1e-3, weight_decay=0.1),
    RAdam(betas=(0.5, 0.9), eps=1e-3, weight_decay=0.1, decoupled_weight_decay=True),
    Rprop(),
    Lars(weight_decay=0.1, trust_coefficient=0.1),
    Lamb(weight_decay=0.1),
    Muon(),
    SparseAdam(eps=1e-3),
)
CLIPS = (*(Clip(),) * 6, Clip(value=0.05), Clip(norm=0.1), Clip(value=0.2, norm=0.3))


def draw_training(graph: Graph, seed: int) -> Training:
    """Draw a training of `graph`, deterministic in the seed."""
    rng = np.random.default_rng((seed, 1))
    optimizer = OPTIMIZERS[int(rng.integers(len(OPTIMIZERS)))]
    clip = CLIPS[int(rng.integers(len(CLIPS)))]
    count = int(rng.choice((1, 1, 1, 1, 2, 3)))
    return Training(_draw_scheme(graph, rng), optimizer, clip, count)


def _draw_scheme(graph: Graph, rng: np.random.Generator) -> Scheme:
    useful = _params_of_loss(graph)
    full = Scheme("full", tuple((name, FULL) for name in useful))
    if rng.random() < 0.5:
        return full
    rules = tuple((name, _draw_choice(graph, name, rng)) for name in useful)
    return full if all(choice == FROZEN for _, choice in rules) else Scheme("drawn", rules)


def _params_of_loss(graph: Graph) -> list[str]:
    """Return the params for which the loss has a gradient, in order."""
    reached: set[Value] = {graph.outputs["loss"]}
    for node in reversed(graph.nodes):
        if reached & set(node.results) and node.op != STOP:
            reached.update(node.operands)
    return [name for name, p in graph.params.items() if p.trainable and p.value in reached]


def _draw_choice(graph: Graph, name: str, rng: np.random.Generator) -> ParamChoice:
    param = graph.params[name]
    kind = rng.choice(("full", "full", "frozen", "share", "range", "channels", "lora"))
    if kind == "frozen":
        return FROZEN
    try:
        axis = channel_axis("drawn", graph, param)
    except SchemeError:
        return FULL
    count = param.value.shape[axis]
    first = int(rng.integers(count))
    if kind == "share":
        return ParamChoice("share", share=0.5, by="random", seed=first)
    if kind == "range":
        return ParamChoice("range", channels=(first, int(rng.integers(first + 1, count + 1))))
    if kind == "channels":
        chosen = rng.permutation(count)[: int(rng.integers(1, count + 1))]
        return ParamChoice("channels", channels=tuple(sorted(map(int, chosen))))
    if kind == "lora":
        return ParamChoice("lora", rank=1, alpha=1.0)
    return FULL
