"""Cases of reductions, scans, sorting, norms and distances over edge-case rows."""

import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional

from pockengine.tests.frontends.edges.arrays import VECTORS, ArrayCase, lines
from pockengine.tests.frontends.edges.hard_numbers import INF

ATEN = torch.ops.aten
ORDERS = (0, 0.5, 1, 1.5, 2, 3, 4, 5, INF, -INF, -1, -2)

ROWS: dict[str, Callable[[torch.Tensor], Any]] = {
    "sum": lambda x: (x.sum(1), x.sum(0), x.sum(1, keepdim=True)),
    "mean": lambda x: (x.mean(1), x.mean(0)),
    "amax": lambda x: x.amax(1),
    "amin": lambda x: x.amin(1),
    "amax of columns": lambda x: x.amax(0),
    "aminmax": lambda x: torch.aminmax(x, dim=1),
    "max": lambda x: x.max(1),
    "min": lambda x: x.min(1),
    "argmax": lambda x: (x.argmax(1), x.argmin(1), x.argmax(), x.argmin()),
    "prod": lambda x: x.prod(1),
    "prod kept": lambda x: x.prod(1, keepdim=True),
    "std": lambda x: x.std(1),
    "std biased": lambda x: x.std(1, unbiased=False),
    "var": lambda x: x.var(1),
    "var corrected": lambda x: x.var(1, correction=2),
    "var_mean": lambda x: torch.var_mean(x, 1),
    "std_mean": lambda x: torch.std_mean(x, 1),
    "logsumexp": lambda x: x.logsumexp(1),
    "logsumexp kept": lambda x: x.logsumexp(1, keepdim=True),
    "softmax": lambda x: x.softmax(1),
    "log_softmax": lambda x: x.log_softmax(1),
    "softmin": lambda x: functional.softmin(x, 1),
    "_safe_softmax": lambda x: ATEN._safe_softmax(x, 1),
    "cumsum": lambda x: (x.cumsum(1), x.cumsum(0)),
    "cumprod": lambda x: x.cumprod(1),
    "cummax": lambda x: (*x.cummax(1), *x.cummax(0)),
    "cummin": lambda x: (*x.cummin(1), *x.cummin(0)),
    "sort": lambda x: x.sort(dim=1, stable=True),
    "sort down": lambda x: x.sort(dim=1, descending=True, stable=True),
    "argsort": lambda x: x.argsort(dim=1, stable=True),
    "msort": torch.msort,
    "topk": lambda x: x.detach().topk(2, 1)[0],
    "topk smallest": lambda x: x.detach().topk(2, 1, largest=False)[0],
    "kthvalue": lambda x: x.detach().kthvalue(2, 1)[0],
    "median": lambda x: x.detach().median(1)[0],
    "any": lambda x: (x.any(1), x.all(1), x.any(), x.all()),
    "any of dims": lambda x: (torch.any(x, dim=(0, 1)), torch.all(x, dim=(0, 1))),
    "histc": lambda x: x.detach().histc(5, min=-2.0, max=2.0),
    "nansum": lambda x: torch.nansum(x, 1),
    "count_nonzero": lambda x: (x != 0).sum(1),
    "normalize": lambda x: functional.normalize(x, dim=1),
    "normalize of 1": lambda x: functional.normalize(x, 1.0, dim=1),
    "cosine_similarity": lambda x: functional.cosine_similarity(x, x.flip(1), 1),
    "cosine_similarity to zero": lambda x: functional.cosine_similarity(x, x * 0, 1),
    "pairwise_distance": lambda x: functional.pairwise_distance(x, x.flip(1)),
    "cdist": lambda x: torch.cdist(x[:6], x[2:7]),
    "cdist of 1": lambda x: torch.cdist(x[:6], x[2:7], 1.0),
    "cdist of 3": lambda x: torch.cdist(x[:6], x[2:7], 3.0),
    "cdist of infinity": lambda x: torch.cdist(x[:6], x[1:5] + 0.25, INF),
    "cdist of 0": lambda x: torch.cdist(x[:6], x[2:7], 0.0),
    "pdist": lambda x: functional.pdist(x[:6]),
    "renorm": lambda x: torch.renorm(x[:6], 2, 0, 1.0),
    "dist": lambda x: torch.dist(x[0], x[1], 3),
    "layer_norm": lambda x: functional.layer_norm(x[:6], (4,)),
    "layer_norm without eps": lambda x: functional.layer_norm(x[:2], (4,), eps=0.0),
    "rms_norm": lambda x: functional.rms_norm(x[:6], (4,)),
    "rms_norm of eps": lambda x: functional.rms_norm(x[:6], (4,), eps=1e-6),
    "group_norm": lambda x: functional.group_norm(x[:6, :, None], 2),
    "instance_norm": lambda x: functional.instance_norm(x[None, :6]),
    "glu": lambda x: functional.glu(x, 1),
    "diff": lambda x: x.diff(dim=1),
    "trace": lambda x: x[:4].trace(),
    "dot": lambda x: x[0].dot(x[4]),
    "outer": lambda x: torch.outer(x[0], x[4]),
    "quantile-free range": lambda x: x.amax(1) - x.amin(1),
}

DISTINCT: dict[str, Callable[[torch.Tensor], Any]] = {
    "topk of distinct": lambda x: x.topk(2, 1),
    "topk smallest of distinct": lambda x: x.topk(2, 1, largest=False),
    "kthvalue of distinct": lambda x: x.kthvalue(2, 1),
    "median of distinct": lambda x: x.median(1),
}
"""Functions of rows without ties: PyTorch's choice among ties is undefined."""

WHOLE: dict[str, Callable[[torch.Tensor], Any]] = {
    "all max": lambda x: (x.max(), x.sum()),
    "all min": lambda x: x.min(),
    "all median": lambda x: x.median(),
    "all prod": lambda x: x.prod(),
    "all std": lambda x: x.std(),
    "all var": lambda x: x.var(),
    "all norm": lambda x: x.norm(),
    "all mean": lambda x: x.mean(),
    "all logsumexp": lambda x: x.logsumexp(0),
    "all softmax": lambda x: x.softmax(0),
    "all sort": lambda x: x.sort()[0],
    "all cumsum": lambda x: x.cumsum(0),
    "all argmax": lambda x: x.argmax(),
    "all any": lambda x: (x.any(), x.all()),
}

SINGLE = frozenset({"all std", "all var"})
"""Functions that need two elements: the importer refuses the variance of one, which is NaN."""

INTEGERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "int sum": lambda x: (x.sum(), x.sum(1)),
    "int amax": lambda x: (x.amax(1), x.amin(1), x.max(), x.min()),
    "int prod": lambda x: x.prod(1),
    "int sum of comparison": lambda x: ((x + 1).sum(0), (x * 2).amax((0, 1))),
    "int max": lambda x: (*x.max(1), *x.min(1)),
    "int cumsum": lambda x: x.cumsum(1),
    "int argmax": lambda x: (x.argmax(1), x.argmin(1)),
    "int sort": lambda x: x.sort(dim=1, stable=True),
    "int any": lambda x: (x.any(1), x.all(1)),
    "int topk": lambda x: x.topk(2, 1)[0],
    "int median": lambda x: x.median(1)[0],
}


def _norm(order: float) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: torch.linalg.vector_norm(x, order, dim=1)


def _whole_norm(order: float) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: torch.linalg.vector_norm(x, order)


def reduction_cases() -> Iterator[ArrayCase]:
    """Yield all cases of this file."""
    for name, function in ROWS.items():
        yield ArrayCase.of(name, function, (lines(),))
    for name, function in DISTINCT.items():
        yield ArrayCase.of(name, function, (lines()[[4, 8, 9, 10, 12, 14]],))
    for order in ORDERS:
        yield ArrayCase.of(f"vector_norm {order}", _norm(order), (lines(),))
        yield ArrayCase.of(f"vector_norm of zeros {order}", _whole_norm(order), (torch.zeros(3),))
    for name, function in WHOLE.items():
        for title, numbers in VECTORS.items():
            if len(numbers) > 1 or name not in SINGLE:
                yield ArrayCase.of(f"{name} of {title}", function, (torch.tensor(numbers),))
    whole = torch.tensor([[3, -1, 3, 0], [2**40, -(2**40), 1, 5], [-7, -7, -7, -7]])
    for name, function in INTEGERS.items():
        yield ArrayCase.of(name, function, (whole,))
    for name in ("max", "min", "median", "sum", "mean", "prod", "amax", "norm"):
        yield ArrayCase.of(f"0-d {name}", operator.methodcaller(name), (torch.tensor(2.0),))
