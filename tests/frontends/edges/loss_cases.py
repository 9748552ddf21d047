"""Edge cases of losses: saturation, kinks, ignored labels."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional as f

from pockengine.tests.frontends.edges.arrays import ArrayCase, lines
from pockengine.tests.frontends.edges.hard_numbers import INF, NAN

REDUCTIONS = ("none", "mean", "sum")

LOGITS = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    30.0,
    -30.0,
    89.0,
    -89.0,
    200.0,
    -200.0,
    1e30,
    -1e30,
    INF,
    -INF,
    NAN,
)
SHARES = (0.0, 1.0, 0.5, 1e-8, 1 - 6e-8, 1e-38, 1e-40, 0.25, 1e-13, 1e-12)
TARGETS = (0.0, 1.0, 0.3)

Loss = Callable[..., torch.Tensor]

PAIRED: dict[str, Loss] = {
    "mse_loss": f.mse_loss,
    "l1_loss": f.l1_loss,
    "smooth_l1_loss": f.smooth_l1_loss,
    "smooth_l1_loss of 0.5": lambda x, y, reduction: f.smooth_l1_loss(
        x, y, reduction=reduction, beta=0.5
    ),
    "smooth_l1_loss of 0": lambda x, y, reduction: f.smooth_l1_loss(
        x, y, reduction=reduction, beta=0.0
    ),
    "huber_loss": f.huber_loss,
    "huber_loss of 2": lambda x, y, reduction: f.huber_loss(x, y, reduction=reduction, delta=2.0),
    "soft_margin_loss": lambda x, y, reduction: f.soft_margin_loss(
        x, torch.sign(y.detach()) + (y == 0), reduction=reduction
    ),
    "hinge_embedding_loss": lambda x, y, reduction: f.hinge_embedding_loss(
        x, torch.sign(y.detach()) + (y == 0), reduction=reduction
    ),
    "margin_ranking_loss": lambda x, y, reduction: f.margin_ranking_loss(
        x, y, torch.ones_like(x), 1.0, reduction=reduction
    ),
    "poisson_nll_loss": lambda x, y, reduction: f.poisson_nll_loss(x, y.abs(), reduction=reduction),
    "kl_div": lambda x, y, reduction: f.kl_div(x, y.abs(), reduction=reduction),
    "kl_div of logs": lambda x, y, reduction: f.kl_div(x, y, reduction=reduction, log_target=True),
}

CLASSED: dict[str, Loss] = {
    "cross_entropy": f.cross_entropy,
    "cross_entropy smoothed": lambda x, y, reduction: f.cross_entropy(
        x, y, reduction=reduction, label_smoothing=0.1
    ),
    "cross_entropy weighted": lambda x, y, reduction: f.cross_entropy(
        x, y, torch.tensor([0.0, 1.0, 2.0, 0.5]), reduction=reduction
    ),
    "cross_entropy weighted and smoothed": lambda x, y, reduction: f.cross_entropy(
        x, y, torch.tensor([0.0, 1.0, 2.0, 0.5]), reduction=reduction, label_smoothing=0.1
    ),
    "nll_loss": lambda x, y, reduction: f.nll_loss(x, y, reduction=reduction),
    "nll_loss of log_softmax": lambda x, y, reduction: f.nll_loss(
        x.log_softmax(1), y, reduction=reduction
    ),
    "multi_margin_loss": lambda x, y, reduction: f.multi_margin_loss(
        x, y.clamp(min=0), reduction=reduction
    ),
}

SINGLE: dict[str, Callable[[torch.Tensor], Any]] = {
    "triplet_margin_loss": lambda x: f.triplet_margin_loss(x[:6], x[:6], x[1:7]),
    "cosine_embedding_loss": lambda x: f.cosine_embedding_loss(
        x[:6], x[1:7], torch.tensor([1.0, -1, 1, -1, 1, -1])
    ),
    "multilabel_margin_loss": lambda x: f.multilabel_margin_loss(
        x[:6], (torch.arange(24).reshape(6, 4) * 5 % 7 % 5 - 1), reduction="none"
    ),
    "multilabel_soft_margin_loss": lambda x: f.multilabel_soft_margin_loss(
        x[:6], (x[:6] > 0).float()
    ),
    "cross_entropy of shares": lambda x: f.cross_entropy(x[:6], x[:6].detach().softmax(1)),
    "cross_entropy of smoothed shares": lambda x: f.cross_entropy(
        x[:6], x[:6].detach().softmax(1), label_smoothing=0.1
    ),
    "log of softmax": lambda x: torch.log(x[:6].softmax(1)),
}

LABELS: dict[str, tuple[int, ...]] = {
    "labels": (0, 1, 2, 3, 0, 1),
    "some ignored": (0, -100, 2, -100, 0, 1),
    "all ignored": (-100, -100, -100, -100, -100, -100),
}


def _reduced(loss: Loss, reduction: str) -> Loss:
    return lambda x, y: loss(x, y, reduction=reduction)


def _grid(first: tuple[float, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    grid = torch.cartesian_prod(torch.tensor(first), torch.tensor(TARGETS))
    return grid[:, 0].contiguous(), grid[:, 1].contiguous()


def loss_cases() -> Iterator[ArrayCase]:
    """Yield all cases of this file."""
    kinks = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, 1.5, 1e-8])
    left, right = torch.cartesian_prod(kinks, torch.tensor([0.0, 1.0, -1.0])).T.contiguous()
    for reduction in REDUCTIONS:
        for name, loss in PAIRED.items():
            yield ArrayCase.of(f"{name} {reduction}", _reduced(loss, reduction), (left, right))
        for name, loss in CLASSED.items():
            for title, labels in LABELS.items():
                yield ArrayCase.of(
                    f"{name} {reduction} of {title}",
                    _reduced(loss, reduction),
                    (lines()[:6], torch.tensor(labels)),
                )
    yield from _binary()
    for name, function in SINGLE.items():
        yield ArrayCase.of(name, function, (lines(),))
    for title, rows in (("infinite", lines()[6:10]), ("NaN", lines()[10:12])):
        for name in ("cross_entropy", "cross_entropy smoothed"):
            labels = torch.arange(len(rows))
            yield ArrayCase.of(
                f"{name} of {title} rows", _reduced(CLASSED[name], "none"), (rows, labels)
            )


def _binary() -> Iterator[ArrayCase]:
    logits, targets = _grid(LOGITS)
    shares, marks = _grid(SHARES)
    for reduction in REDUCTIONS:
        for name, (x, y) in {
            "binary_cross_entropy": (shares, marks),
            "binary_cross_entropy_with_logits": (logits, targets),
        }.items():
            loss = _reduced(getattr(f, name), reduction)
            fixed = lambda x, y=y, loss=loss: loss(x, y)  # noqa: E731
            if reduction == "none" or x is shares:
                yield ArrayCase.of(f"{name} {reduction}", fixed, (x,))
    finite = torch.isfinite(logits)
    logits, targets = logits[finite], targets[finite]
    weights = torch.linspace(0, 2, len(logits))
    yield ArrayCase.of(
        "bce_with_logits weighted",
        lambda x: f.binary_cross_entropy_with_logits(
            x, targets, weights, pos_weight=torch.tensor(3.0), reduction="none"
        ),
        (logits,),
    )
    yield ArrayCase.of(
        "bce weighted",
        lambda x: f.binary_cross_entropy(x, marks, torch.linspace(0, 2, len(marks))),
        (shares,),
    )
    yield ArrayCase.of(
        "bce of a saturated sigmoid",
        lambda x: f.binary_cross_entropy(torch.sigmoid(x), targets, reduction="none"),
        (logits,),
    )
    yield ArrayCase.of(
        "bce with trained targets",
        lambda x, y: f.binary_cross_entropy_with_logits(x, y, reduction="none"),
        (logits[:9], targets[:9]),
    )
