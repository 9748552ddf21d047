"""Edge cases of layers, indexing, scattering and data movement, with repeated indices."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional as f

from pockengine.tests.frontends.edges.arrays import ArrayCase, lines
from pockengine.tests.frontends.edges.hard_numbers import INF, NAN

ATEN = torch.ops.aten
PRIMS = torch.ops.prims
REPEATED = torch.tensor([1, 0, 1, 1])

Unary = Callable[[torch.Tensor], Any]
Indexing = Callable[[torch.Tensor, torch.Tensor], Any]


def _smoothed(kind: str) -> Unary:
    return lambda x: (
        f.interpolate(x[None, None], (3, 5), mode=kind, antialias=True),
        getattr(ATEN, f"_upsample_{kind}2d_aa")(x[None, None], [5, 3], False),
    )


def _scattered(how: str, own: bool) -> Indexing:
    return lambda x, i: x.scatter_reduce(0, i[:, None].expand(4, 4), 2 * x, how, include_self=own)


def _index_reduced(how: str) -> Indexing:
    return lambda x, i: x.index_reduce(0, i, 2 * x, how)


PICTURES: dict[str, Unary] = {
    "max_pool2d": lambda x: f.max_pool2d(x, 2),
    "max_pool2d overlapping": lambda x: f.max_pool2d(x, 3, 1, 1),
    "max_pool2d with indices": lambda x: f.max_pool2d(x, 2, return_indices=True)[0],
    "avg_pool2d": lambda x: f.avg_pool2d(x, 2),
    "adaptive_max_pool2d": lambda x: f.adaptive_max_pool2d(x, 3),
    "adaptive_avg_pool2d": lambda x: f.adaptive_avg_pool2d(x, 3),
    "adaptive_max_pool1d": lambda x: f.adaptive_max_pool1d(x[0], 3),
    "adaptive_avg_pool1d": lambda x: f.adaptive_avg_pool1d(x[0], 3),
    "adaptive_max_pool3d": lambda x: f.adaptive_max_pool3d(x, 2),
    "adaptive_avg_pool3d": lambda x: f.adaptive_avg_pool3d(x, 2),
    "_adaptive_avg_pool3d": lambda x: ATEN._adaptive_avg_pool3d(x[0][None], [2, 2, 2]),
    "max_pool3d": lambda x: (f.max_pool3d(x, 2), f.max_pool3d(x, 3, 1, 1)),
    "max_pool3d with indices": lambda x: f.max_pool3d(x, 2, return_indices=True)[0],
    "avg_pool3d": lambda x: f.avg_pool3d(x, 2),
    "pad": lambda x: f.pad(x, (1, 0, 0, 2), value=-INF),
    "constant_pad_nd": lambda x: ATEN.constant_pad_nd(x, [1, 1], 0.5),
    "grid_sample": lambda x: f.grid_sample(x, torch.linspace(-1.2, 1.2, 16).reshape(2, 2, 2, 2)),
    "grid_sample 3d": lambda x: f.grid_sample(
        x[:, None], torch.linspace(-1.2, 1.2, 12).reshape(2, 2, 1, 1, 3), mode="nearest"
    ),
    "flatten": lambda x: x.flatten(1),
    "unfold": lambda x: x.unfold(3, 3, 2),
    "as_strided": lambda x: x.as_strided((3, 4), (5, 2), 3),
    "as_strided of another order": lambda x: x.mT.as_strided((3, 4), (5, 2), 3).square(),
    "im2col": lambda x: f.unfold(x, 2, stride=2),
    "pixel_shuffle": lambda x: f.pixel_shuffle(x, 2),
    "channel_shuffle": lambda x: f.channel_shuffle(x, 2),
    "nearest2d": lambda x: f.interpolate(x, scale_factor=2),
    "nearest2d of size": lambda x: ATEN.upsample_nearest2d(x, [3, 7]),
    "nearest-exact": lambda x: f.interpolate(x, (3, 7), mode="nearest-exact"),
    "nearest-exact default": lambda x: ATEN._upsample_nearest_exact2d(x, [3, 7]),
    "nearest1d": lambda x: f.interpolate(x[0], 7),
    "nearest1d default": lambda x: ATEN.upsample_nearest1d(x[0], [7]),
    "nearest-exact1d": lambda x: f.interpolate(x[0], 7, mode="nearest-exact"),
    "nearest-exact1d default": lambda x: ATEN._upsample_nearest_exact1d(x[0], [7]),
    "nearest3d": lambda x: f.interpolate(x[None], (4, 5, 6)),
    "nearest3d default": lambda x: ATEN.upsample_nearest3d(x[None], [4, 5, 6]),
    "nearest-exact3d": lambda x: f.interpolate(x[None], (4, 5, 6), mode="nearest-exact"),
    "nearest-exact3d default": lambda x: ATEN._upsample_nearest_exact3d(x[None], [4, 5, 6]),
    "permute": lambda x: x.permute(0, 2, 3, 1),
    "transpose": lambda x: (x.transpose(1, 2), x[0].mT, x[0, 0].t(), x[0, 0].T),
    "squeeze": lambda x: (x[:1].squeeze(), x[:1].squeeze(0), x[:1, :1].squeeze((0, 1))),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "split": lambda x: (*x.split(2, 3), *x.split([1, 3], 3), *x.chunk(3, 1), *x.unbind(0)),
    "split_with_sizes": lambda x: ATEN.split_with_sizes(x, [1, 3], 3),
    "narrow": lambda x: (x.narrow(1, 1, 2), x.select(1, -1), x[..., ::2]),
    "expand": lambda x: (x[:, :1].expand(2, 4, 4, 4), x[:, :1].expand_as(x)),
    "broadcast_tensors": lambda x: torch.broadcast_tensors(x, x[0]),
    "cat": lambda x: (torch.cat([x, x[:1]]), torch.stack([x, x], 1), torch.concat([x, x])),
    "view": lambda x: (x.view(8, -1), x.reshape(-1), x.view_as(x), x.reshape_as(x)),
    "_unsafe_view": lambda x: ATEN._unsafe_view(x, [8, 16]),
    "unflatten": lambda x: x.unflatten(1, (2, 2)),
    "diagonal": lambda x: (x.diagonal(0, 2, 3), torch.diag_embed(x[0, 0])),
    "flip": lambda x: x.flip(2, 3),
    "prims": lambda x: (PRIMS.amax(x.detach(), [1]), PRIMS.amin(x.detach(), [1])),
    "prims sums": lambda x: (PRIMS.sum(x.detach(), [1]), PRIMS.prod(x.detach(), [1])),
    "prims shape": lambda x: PRIMS.broadcast_in_dim(x[0, 0].detach(), [2, 4, 4], [1, 2]),
    "prims var": lambda x: PRIMS.var(x[1].detach(), [1], 1.0),
    "prims where": lambda x: PRIMS.where(x > 0, x.detach(), -x.detach()),
    "prims cast": lambda x: PRIMS.convert_element_type(x > 0, torch.float32),
    "to": lambda x: ((x > 0).to(torch.float32), (x > 0).type_as(x), (x > 0).to(x)),
    "batch_norm": lambda x: f.batch_norm(x[1:], None, None, training=True),
    "batch_norm of running": lambda x: f.batch_norm(x, torch.zeros(4), torch.ones(4)),
}

LINEAR: dict[str, Unary] = {
    "linear": lambda x: f.linear(x, x[:3], x[:3, 0]),
    "matmul": lambda x: (x @ x.T, x @ x[0], x[0] @ x[0]),
    "mm": lambda x: torch.mm(x, x.T),
    "bmm": lambda x: torch.bmm(x[None], x.T[None]),
    "addmm": lambda x: torch.addmm(x[:, :1], x, x.T, beta=0.5, alpha=2),
    "addbmm": lambda x: torch.addbmm(x[:, :1], x[None], x.T[None]),
    "bilinear of two": lambda x: f.bilinear(x, x, torch.stack([x, -x, x])),
    "conv1d": lambda x: f.conv1d(x[None], x[:3, :, None], padding="same"),
    "conv1d plain": lambda x: f.conv1d(x[None], x[:3, :, None]),
    "conv2d": lambda x: f.conv2d(x[None, :, :, None], x[:3, :, None, None]),
    "conv2d same": lambda x: f.conv2d(x[None, :, :, None], x[:3, :, None, None], padding="same"),
    "conv_transpose1d": lambda x: f.conv_transpose1d(x[None], x[:, :3, None]),
    "conv_transpose2d": lambda x: f.conv_transpose2d(x[None, :, :, None], x[:, :3, None, None]),
    "conv3d": lambda x: f.conv3d(x[None, :, :, None, None], x[:3, :, None, None, None]),
    "conv3d same": lambda x: f.conv3d(
        x[None, :, :, None, None], x[:3, :, None, None, None], padding="same"
    ),
    "conv_transpose3d": lambda x: f.conv_transpose3d(
        x[None, :, :, None, None], x[:, :3, None, None, None]
    ),
    "embedding_bag": lambda x: (
        f.embedding_bag(REPEATED[None], x, mode="max"),
        ATEN.embedding_bag(x, REPEATED, REPEATED[:1] * 0, False, 1)[0],
    ),
    "_embedding_bag": lambda x: ATEN._embedding_bag(x, REPEATED, REPEATED[:1] * 0)[0],
    "logcumsumexp": lambda x: x.logcumsumexp(1),
    "nanmedian": lambda x: (x.nanmedian(), *x.nanmedian(1)),
    "searchsorted": lambda x: torch.searchsorted(torch.arange(-2.0, 3.0), x),
    "attention": lambda x: f.scaled_dot_product_attention(x[None], x[None], x[None]),
    "attention with a mask": lambda x: f.scaled_dot_product_attention(
        x[None], x[None], x[None], torch.tensor([[True, False, True, False]] * 4)
    ),
    "attention of rows that see nothing": lambda x: f.scaled_dot_product_attention(
        x[None], x[None], x[None], torch.tensor([[True] * 4, [False] * 4] * 2)
    ),
    "embedding": lambda x: f.embedding(REPEATED, x, padding_idx=0),
    "bilinear2d": lambda x: f.interpolate(x[None, None], (5, 3), mode="bilinear"),
    "bilinear2d default": lambda x: ATEN.upsample_bilinear2d(x[None, None], [5, 3], False),
    **{f"{kind} smoothed": _smoothed(kind) for kind in ("bilinear", "bicubic")},
    "linear1d": lambda x: f.interpolate(x[None], 7, mode="linear"),
    "linear1d default": lambda x: ATEN.upsample_linear1d(x[None], [7], False),
    "dropout of nothing": lambda x: (
        f.dropout(x, 0.0),
        f.feature_dropout(x, 0.0) if hasattr(f, "feature_dropout") else f.dropout2d(x[None], 0.0),
        f.alpha_dropout(x, 0.0, True),
        f.feature_alpha_dropout(x, 0.0, True),
    ),
}

INDEXED: dict[str, Indexing] = {
    "index": lambda x, i: x[i],
    "_unsafe_index": lambda x, i: ATEN._unsafe_index(x, [i]),
    "take": lambda x, i: torch.take(x, i),
    "index_select": lambda x, i: x.index_select(0, i),
    "gather": lambda x, i: x.gather(0, i[:, None].expand(4, 4)),
    "take_along_dim": lambda x, i: torch.take_along_dim(x, i[:, None], 0),
    "index_put": lambda x, i: x.index_put((i,), 2 * x),
    "index_put added": lambda x, i: x.index_put((i,), 2 * x, accumulate=True),
    "_unsafe_index_put": lambda x, i: ATEN._unsafe_index_put(x, [i], 2 * x),
    "_index_put_impl": lambda x, i: ATEN._index_put_impl(x, [i], 2 * x),
    "index_copy": lambda x, i: x.index_copy(0, i, 2 * x),
    "index_add": lambda x, i: x.index_add(0, i, x, alpha=2),
    "index_fill": lambda x, i: x.index_fill(0, i, 3.0),
    "index_fill of a trained value": lambda x, i: (x * x).index_fill(0, i, x[2, 1]),
    "put": lambda x, i: torch.ops.aten.put(x, i, x[0], True),
    "scatter": lambda x, i: x.scatter(0, torch.stack([i, 3 - i, i * 0, i + 1], 1), 2 * x),
    "scatter value": lambda x, i: x.scatter(0, i[:, None], 2.0),
    "scatter_add": lambda x, i: x.scatter_add(0, i[:, None].expand(4, 4), x),
    **{
        f"scatter_reduce {how}{'' if own else ' of others'}": _scattered(how, own)
        for how in ("sum", "mean", "amax", "amin", "prod")
        for own in (True, False)
    },
    **{f"index_reduce {how}": _index_reduced(how) for how in ("mean", "amax", "amin", "prod")},
    "one_hot": lambda x, i: f.one_hot(i, 3) * x[0, 0],
    "bool index_put": lambda x, i: torch.where((x > 0).index_select(0, i), x, 0.0),
}


def layer_cases() -> Iterator[ArrayCase]:
    """Yield all cases of this file."""
    for name, pictures in PICTURES.items():
        yield ArrayCase.of(name, pictures, (picture(),))
    hard = lines()[[0, 4, 5, 3]]
    for name, function in LINEAR.items():
        yield ArrayCase.of(name, function, (hard,))
    for name, indexed in INDEXED.items():
        yield ArrayCase.of(name, indexed, (hard, REPEATED))
    for name in ("index", "index_select", "gather", "index_add", "index_put added"):
        limits = torch.tensor([[INF, NAN], [0.0, -INF], [1.0, 2.0], [3.0, 4.0]]).repeat(1, 2)
        yield ArrayCase.of(f"{name} of limits", INDEXED[name], (limits, REPEATED))


def picture() -> torch.Tensor:
    """Return a (2, 4, 4, 4) array with ties, constants, infinities and a NaN in windows."""
    x = torch.arange(128.0).reshape(2, 4, 4, 4) % 5 - 2
    x[0, 0], x[0, 1], x[0, 2, :2] = 1.0, -INF, 0.0
    x[0, 2, 2, 2], x[0, 3, 1, 1], x[0, 3, 0, 0] = INF, NAN, -0.0
    return x
