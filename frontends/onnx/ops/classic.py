"""Operators of the domain ai.onnx.ml that converters of scikit-learn write.

The weights of linear models are attributes there; they become params named after the operator:
`LinearClassifier.coefficients`. Models without a gradient (trees, neighbors) have no rule.
"""

import math

import numpy as np

from pockengine.compiler.ir import F32, I64
from pockengine.frontends import emit
from pockengine.frontends.emit import nn as emit_nn
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor, framework_order, plain, reshape
from pockengine.frontends.onnx.ops.registry import ML_DOMAIN, OnnxContext, onnx_op

WEIGHTS = ("coefficients", "intercepts")
"""The attributes of linear models that become params."""
MOST_KEYS = 256
TINY = 1e-30
"""Minimum divisor of Normalizer."""


def _scores(
    ctx: OnnxContext,
    x: Tensor,
    coefficients: list[float],
    intercepts: list[float] | None,
    rows: int | None,
) -> Tensor:
    """Return x times the rows of coefficients, plus intercepts: (batch, rows)."""
    features = x.shape[-1]
    count = len(coefficients) // features if rows is None else rows
    if x.rank != 2 or count * features != len(coefficients):
        raise Unsupported(f"{len(coefficients)} coefficients for an input of {list(x.shape)}")
    weight = ctx.weight("coefficients", np.reshape(coefficients, (count, features)))
    bias = None if not intercepts else ctx.weight("intercepts", np.asarray(intercepts))
    return emit_nn.linear(ctx.g, emit.cast(ctx.g, x, F32), weight, bias)


def _transformed(ctx: OnnxContext, scores: Tensor, post_transform: str) -> Tensor:
    if post_transform == "NONE":
        return scores
    if post_transform == "LOGISTIC":
        return emit.unary("sigmoid")(ctx.g, scores)
    if post_transform == "SOFTMAX":
        return emit.along_last(ctx.g, "softmax", scores, -1)
    raise Unsupported(f"post_transform {post_transform!r}; use NONE, LOGISTIC or SOFTMAX")


@onnx_op("LinearRegressor", domain=ML_DOMAIN)
def linear_regressor(
    ctx: OnnxContext,
    x: Tensor,
    *,
    coefficients: list[float],
    intercepts: list[float] | None = None,
    post_transform: str = "NONE",
    targets: int = 1,
) -> Tensor:
    """Map features to targets by a matrix of (targets, features)."""
    scores = _scores(ctx, x, coefficients, intercepts=intercepts, rows=targets)
    return _transformed(ctx, scores, post_transform)


@onnx_op("LinearClassifier", domain=ML_DOMAIN)
def linear_classifier(
    ctx: OnnxContext,
    x: Tensor,
    *,
    coefficients: list[float],
    intercepts: list[float] | None = None,
    classlabels_ints: list[int] | None = None,
    classlabels_strings: list[str] | None = None,
    multi_class: int = 0,
    post_transform: str = "NONE",
) -> list[Tensor | None]:
    """Return the label of the best class, and each class's score."""
    g = ctx.g
    labels = classlabels_ints or []
    scores = _scores(ctx, x, coefficients, intercepts=intercepts, rows=None)
    if scores.shape[1] == 1 and max(len(labels), len(classlabels_strings or [])) == 2:
        scores = emit.concat(g, [emit.unary("neg")(g, scores), scores], 1)
    scores = _transformed(ctx, scores, post_transform)
    if not ctx.wants(0):
        return [None, scores]
    if classlabels_strings:
        raise Unsupported("labels that are text; number the classes before exporting the model")
    if scores.shape[1] == 1:
        limit = 0.0 if post_transform == "NONE" else 0.5
        best = emit.cast(g, emit.arithmetic(g, "ge", reshape(g, scores, (x.shape[0],)), limit), I64)
        return [emit.arithmetic(g, "mul", best, labels[0]) if labels else best, scores]
    best = plain(g.argmax(framework_order(g, scores), axis=1))
    if labels:
        known = g.constant(np.asarray(labels, np.int64))
        best = plain(g.take(known, best.value, axis=0))
    return [best, scores]


@onnx_op("Scaler", domain=ML_DOMAIN)
def scaler(ctx: OnnxContext, x: Tensor, *, offset: list[float], scale: list[float]) -> Tensor:
    """(x - offset) scale, for each feature."""
    low, factor = (plain(ctx.g.constant(np.asarray(part, np.float32))) for part in (offset, scale))
    centered = emit.arithmetic(ctx.g, "sub", emit.cast(ctx.g, x, F32), low)
    return emit.arithmetic(ctx.g, "mul", centered, factor)


@onnx_op("Normalizer", domain=ML_DOMAIN)
def normalizer(ctx: OnnxContext, x: Tensor, *, norm: str = "MAX") -> Tensor:
    """Divide each row by its norm."""
    g, x = ctx.g, emit.cast(ctx.g, x, F32)
    sizes = emit.unary("abs")(g, x)
    if norm == "MAX":
        length = emit.reduce(g, "reduce_max", sizes, [-1], keepdims=True)
    elif norm == "L1":
        length = emit.reduce(g, "reduce_sum", sizes, [-1], keepdims=True)
    elif norm == "L2":
        squares = emit.reduce(g, "reduce_sum", emit.unary("square")(g, x), [-1], keepdims=True)
        length = emit.unary("sqrt")(g, squares)
    else:
        raise Unsupported(f"the norm {norm!r}")
    return emit.arithmetic(g, "div", x, emit.arithmetic(g, "maximum", length, TINY))


@onnx_op("Binarizer", domain=ML_DOMAIN)
def binarizer(ctx: OnnxContext, x: Tensor, *, threshold: float = 0.0) -> Tensor:
    """1 above the threshold, else 0."""
    return emit.cast(ctx.g, emit.arithmetic(ctx.g, "gt", x, threshold), x.dtype)


@onnx_op("Imputer", domain=ML_DOMAIN)
def imputer(
    ctx: OnnxContext,
    x: Tensor,
    *,
    imputed_value_floats: list[float] | None = None,
    imputed_value_int64s: list[int] | None = None,
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> Tensor:
    """Replace a number, or NaN, by each feature's own."""
    g = ctx.g
    whole = not imputed_value_floats
    values = imputed_value_int64s if whole else imputed_value_floats
    gone = replaced_value_int64 if whole else replaced_value_float
    missing = (
        emit.elementwise(g, "ne", x, x) if math.isnan(gone) else emit.arithmetic(g, "eq", x, gone)
    )
    filling = plain(g.constant(np.asarray(values, x.dtype.numpy)))
    return emit.elementwise(g, "where", missing, filling, x)


@onnx_op("FeatureVectorizer", domain=ML_DOMAIN)
def feature_vectorizer(
    ctx: OnnxContext, *parts: Tensor, inputdimensions: list[int] | None = None
) -> Tensor:
    """Join features, each part cut or filled up by zeros to its declared number."""
    sizes = inputdimensions or [part.shape[-1] if part.rank == 2 else 1 for part in parts]
    columns = []
    for part, size in zip(parts, sizes, strict=True):
        x = emit.cast(ctx.g, part, F32)
        x = x if x.rank == 2 else reshape(ctx.g, x, (x.size, 1))
        columns.append(emit.pad(ctx.g, x, (0, 0), (0, size - x.shape[1]), value=0.0))
    return emit.concat(ctx.g, columns, 1)


@onnx_op("ArrayFeatureExtractor", domain=ML_DOMAIN)
def array_feature_extractor(ctx: OnnxContext, x: Tensor, index: Tensor) -> Tensor:
    """Read features at these places of the last dimension."""
    x = reshape(ctx.g, x, (1, x.size)) if x.rank < 2 else x
    places = framework_order(ctx.g, reshape(ctx.g, index, (index.size,)))
    return plain(ctx.g.take(framework_order(ctx.g, x), places, axis=x.rank - 1))


@onnx_op("OneHotEncoder", domain=ML_DOMAIN)
def one_hot_encoder(
    ctx: OnnxContext,
    x: Tensor,
    *,
    cats_int64s: list[int] | None = None,
    cats_strings: list[str] | None = None,
    zeros: int = 1,
) -> Tensor:
    """One-hot encode each number by its category; zeros for a number without one."""
    if not cats_int64s:
        raise Unsupported("categories that are text; number them before the model")
    if not zeros:
        raise Unsupported("zeros=0, an error for unknown categories that depends on data")
    categories = plain(ctx.g.constant(np.asarray(cats_int64s, x.dtype.numpy)))
    wide = reshape(ctx.g, x, (*x.shape, 1))
    return emit.cast(ctx.g, emit.elementwise(ctx.g, "eq", wide, categories), F32)


@onnx_op("LabelEncoder", domain=ML_DOMAIN)
def label_encoder(
    ctx: OnnxContext,
    x: Tensor,
    *,
    keys_floats: list[float] | None = None,
    keys_int64s: list[int] | None = None,
    values_floats: list[float] | None = None,
    values_int64s: list[int] | None = None,
    default_float: float = 0.0,
    default_int64: int = -1,
    default_string: str = "_Unused",
) -> Tensor:
    """Map numbers to numbers; the default for those that are not a key."""
    keys = keys_floats or keys_int64s
    values = values_floats or values_int64s
    if not keys or not values or len(keys) != len(values) or len(keys) > MOST_KEYS:
        raise Unsupported(f"keys or values that are not up to {MOST_KEYS} numbers")
    g, dtype = ctx.g, F32 if values_floats else I64
    default = default_float if values_floats else default_int64
    y = emit.scalar(g, default, dtype)
    for key, value in zip(keys, values, strict=True):
        here = (
            emit.elementwise(g, "ne", x, x)
            if math.isnan(key)
            else emit.elementwise(g, "eq", x, emit.scalar(g, key, x.dtype))
        )
        y = emit.elementwise(g, "where", here, emit.scalar(g, value, dtype), y)
    return y
