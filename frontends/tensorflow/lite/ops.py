"""TFLite's operators, most of them TensorFlow's under another name.

A rule is called with the context, the operator's options and its inputs (None where one is left
out); the positions in `static` arrive as NumPy arrays. `wishes` says in which order of dimensions
our ops want an input that the file holds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pockengine.compiler.ir import F32, I32, I64
from pockengine.frontends import emit
from pockengine.frontends.emit import activation as emit_activation
from pockengine.frontends.emit import nn as emit_nn
from pockengine.frontends.emit.meanings import emitter
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import IN_OUT, Layout, Tensor, permute, plain, stored
from pockengine.frontends.tensorflow.ops import RULES, Known, TfContext
from pockengine.frontends.tensorflow.ops.nn import NCHW_OF_NHWC, NHWC_OF_NCHW, window_of

Rule = Callable[..., Known]
Settings = Callable[[Any], dict[str, Any]]

OHWI: Layout = (1, 2, 3, 0)
"""Our (KH, KW, I, O) of a weight that TFLite holds as (O, KH, KW, I)."""
DEPTHWISE: Layout = (1, 2, 0, 3)
"""Our (KH, KW, 1, C) of a depthwise weight that TFLite holds as (1, KH, KW, C)."""


@dataclass(frozen=True)
class LiteRule:
    """A rule with what the importer must know before it calls it."""

    apply: Rule
    static: tuple[int, ...] = ()
    wishes: Mapping[int, Layout] = field(default_factory=dict)


LITE_RULES: dict[str, LiteRule] = {}


def lite_op(
    name: str, static: Sequence[int] = (), wishes: Mapping[int, Layout] | None = None
) -> Callable[[Rule], Rule]:
    """Register a rule for an operator."""

    def register(rule: Rule) -> Rule:
        LITE_RULES[name] = LiteRule(rule, tuple(static), wishes or {})
        return rule

    return register


def activated(ctx: TfContext, y: Tensor, kind: int) -> Tensor:
    """Apply the activation that an operator carries along, by its number in the schema."""
    named = {0: None, 1: "Relu", 3: "Relu6", 4: "Tanh"}
    if kind == 2:
        return Tensor(ctx.g.hardtanh(y.value, min=-1.0, max=1.0), y.layout)
    if kind not in named:
        raise Unsupported(f"the fused activation {kind}")
    name = named[kind]
    return y if name is None else RULES[name].apply(ctx, y)


def _nothing(options: Any) -> dict[str, Any]:
    return {}


def _keep_dims(options: Any) -> dict[str, Any]:
    return {"keep_dims": bool(options.KeepDims())}


def _half_pixels(options: Any) -> dict[str, Any]:
    return {
        "align_corners": bool(options.AlignCorners()),
        "half_pixel_centers": bool(options.HalfPixelCenters()),
    }


def _masks(options: Any) -> dict[str, Any]:
    return {
        "begin_mask": options.BeginMask(),
        "end_mask": options.EndMask(),
        "ellipsis_mask": options.EllipsisMask(),
        "new_axis_mask": options.NewAxisMask(),
        "shrink_axis_mask": options.ShrinkAxisMask(),
    }


def _axis(options: Any) -> dict[str, Any]:
    return {"axis": options.Axis()}


# TFLite's operator -> TensorFlow's, and how its attributes are read from the options
SAME: dict[str, tuple[str, Settings]] = {
    "ABS": ("Abs", _nothing),
    "BATCH_MATMUL": ("BatchMatMulV2", lambda o: {"adj_x": o.AdjX(), "adj_y": o.AdjY()}),
    "BROADCAST_TO": ("BroadcastTo", _nothing),
    "CEIL": ("Ceil", _nothing),
    "COS": ("Cos", _nothing),
    "DEPTH_TO_SPACE": ("DepthToSpace", lambda o: {"block_size": o.BlockSize()}),
    "DEQUANTIZE": ("Identity", _nothing),
    "ELU": ("Elu", _nothing),
    "EQUAL": ("Equal", _nothing),
    "EXP": ("Exp", _nothing),
    "EXPAND_DIMS": ("ExpandDims", _nothing),
    "FLOOR": ("Floor", _nothing),
    "GREATER": ("Greater", _nothing),
    "GREATER_EQUAL": ("GreaterEqual", _nothing),
    "LEAKY_RELU": ("LeakyRelu", lambda o: {"alpha": o.Alpha()}),
    "LESS": ("Less", _nothing),
    "LESS_EQUAL": ("LessEqual", _nothing),
    "LOG": ("Log", _nothing),
    "LOGICAL_AND": ("LogicalAnd", _nothing),
    "LOGICAL_NOT": ("LogicalNot", _nothing),
    "LOGICAL_OR": ("LogicalOr", _nothing),
    "LOGISTIC": ("Sigmoid", _nothing),
    "LOG_SOFTMAX": ("LogSoftmax", _nothing),
    "MAXIMUM": ("Maximum", _nothing),
    "MEAN": ("Mean", _keep_dims),
    "MINIMUM": ("Minimum", _nothing),
    "MIRROR_PAD": ("MirrorPad", lambda o: {"mode": ("REFLECT", "SYMMETRIC")[o.Mode()]}),
    "NEG": ("Neg", _nothing),
    "NOT_EQUAL": ("NotEqual", _nothing),
    "PACK": ("Pack", _axis),
    "PAD": ("Pad", _nothing),
    "PADV2": ("PadV2", _nothing),
    "POW": ("Pow", _nothing),
    "QUANTIZE": ("Identity", _nothing),
    "REDUCE_MAX": ("Max", _keep_dims),
    "REDUCE_MIN": ("Min", _keep_dims),
    "RELU": ("Relu", _nothing),
    "RELU6": ("Relu6", _nothing),
    "RESIZE_BILINEAR": ("ResizeBilinear", _half_pixels),
    "RESIZE_NEAREST_NEIGHBOR": ("ResizeNearestNeighbor", _half_pixels),
    "REVERSE_V2": ("ReverseV2", _nothing),
    "ROUND": ("Round", _nothing),
    "RSQRT": ("Rsqrt", _nothing),
    "SELECT": ("Select", _nothing),
    "SELECT_V2": ("SelectV2", _nothing),
    "SIN": ("Sin", _nothing),
    "SLICE": ("Slice", _nothing),
    "SPLIT": ("Split", lambda o: {"num_split": o.NumSplits()}),
    "SQRT": ("Sqrt", _nothing),
    "SQUARE": ("Square", _nothing),
    "SQUARED_DIFFERENCE": ("SquaredDifference", _nothing),
    "STRIDED_SLICE": ("StridedSlice", _masks),
    "SUM": ("Sum", _keep_dims),
    "TANH": ("Tanh", _nothing),
    "TILE": ("Tile", _nothing),
    "TRANSPOSE": ("Transpose", _nothing),
    "UNPACK": ("Unpack", lambda o: {"num": o.Num(), "axis": o.Axis()}),
}


def _define_same(name: str, op: str, settings: Settings) -> None:
    rule = RULES[op]

    @lite_op(name, static=(*rule.static, *rule.either))
    def apply(ctx: TfContext, options: Any, *inputs: Any) -> Known:
        given = [x for x in inputs if x is not None]
        return rule.apply(ctx, *given, **(settings(options) if options else {}))


for _name, (_op, _settings) in SAME.items():
    _define_same(_name, _op, _settings)


def _define(name: str, meaning: str) -> None:
    emitted = emitter(meaning)

    @lite_op(name)
    def rule(ctx: TfContext, options: Any, *operands: Tensor) -> Tensor:
        return emitted(ctx.g, *operands)


# Operators that TensorFlow has none of the same meaning for
for _name, _meaning in (("HARD_SWISH", "hard_swish"), ("PRELU", "prelu")):
    _define(_name, _meaning)


def _define_arithmetic(name: str, op: str) -> None:
    @lite_op(name)
    def rule(ctx: TfContext, options: Any, a: Tensor, b: Tensor) -> Tensor:
        y = emit.elementwise(ctx.g, op, a, b)
        return activated(ctx, y, options.FusedActivationFunction() if options else 0)


for _name, _op in (("ADD", "add"), ("DIV", "div"), ("MUL", "mul"), ("SUB", "sub")):
    _define_arithmetic(_name, _op)


def _window(x: Tensor, kernel: tuple[int, int], options: Any) -> emit_nn.Window:
    dilation = (1, 1)
    if hasattr(options, "DilationHFactor"):
        dilation = (options.DilationHFactor(), options.DilationWFactor())
    stride = (options.StrideH(), options.StrideW())
    padding = ("SAME", "VALID")[options.Padding()]
    return window_of((x.shape[1], x.shape[2]), kernel, stride, dilation, padding)


def _convolved(
    ctx: TfContext, options: Any, x: Tensor, kernel: Tensor, bias: Tensor | None, groups: int
) -> Tensor:
    """Convolve NHWC by a weight seen as (O, I, KH, KW)."""
    window = _window(x, (kernel.shape[2], kernel.shape[3]), options)
    y = emit_nn.conv2d(ctx.g, permute(x, NCHW_OF_NHWC), kernel, bias, window, groups)
    return activated(ctx, permute(y, NHWC_OF_NCHW), options.FusedActivationFunction())


@lite_op("CONV_2D", wishes={1: OHWI})
def conv2d(
    ctx: TfContext, options: Any, x: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Tensor:
    """Convolve by (O, KH, KW, I)."""
    kernel = permute(weight, (0, 3, 1, 2))
    return _convolved(ctx, options, x, kernel, bias, x.shape[3] // weight.shape[3])


@lite_op("DEPTHWISE_CONV_2D", wishes={1: DEPTHWISE})
def depthwise_conv2d(
    ctx: TfContext, options: Any, x: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Tensor:
    """Convolve each channel by filters of its own, given as (1, KH, KW, C M)."""
    return _convolved(ctx, options, x, permute(weight, (3, 0, 1, 2)), bias, x.shape[3])


@lite_op("FULLY_CONNECTED", wishes={1: IN_OUT})
def fully_connected(
    ctx: TfContext, options: Any, x: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Tensor:
    """Map rows by (out, in); without KeepNumDims all leading dimensions are rows."""
    if not options.KeepNumDims() and x.rank != 2:
        x = RULES["Reshape"].apply(ctx, x, np.array([-1, weight.shape[1]]))
    y = emit_nn.linear(ctx.g, x, weight, bias)
    return activated(ctx, y, options.FusedActivationFunction())


def _define_pool(name: str, average: bool) -> None:
    @lite_op(name)
    def rule(ctx: TfContext, options: Any, x: Tensor) -> Tensor:
        window = _window(x, (options.FilterHeight(), options.FilterWidth()), options)
        picture = permute(x, NCHW_OF_NHWC)
        if average:
            y = emit_nn.avg_pool2d(ctx.g, picture, window, count_padding=False)
        else:
            y = emit_nn.max_pool2d(ctx.g, picture, window)
        return activated(ctx, permute(y, NHWC_OF_NCHW), options.FusedActivationFunction())


_define_pool("AVERAGE_POOL_2D", average=True)
_define_pool("MAX_POOL_2D", average=False)


@lite_op("RESHAPE", static=(1,))
def reshape(ctx: TfContext, options: Any, x: Tensor, target: np.ndarray | None = None) -> Tensor:
    """Reshape to what an input or, in older files, an option says."""
    shape = target if target is not None else np.array(options.NewShapeAsNumpy())
    shape = np.array(shape)
    if shape.size and shape[0] == 1 and shape.prod() not in (x.size,) and -1 not in shape:
        shape[0] = -1  # converted for one sample; the batch is the user's
    return RULES["Reshape"].apply(ctx, x, shape)


@lite_op("SQUEEZE")
def squeeze(ctx: TfContext, options: Any, x: Tensor) -> Tensor:
    """Drop dimensions of size 1."""
    dims = options.SqueezeDimsAsNumpy() if options else 0
    named = [int(dim) for dim in dims] if isinstance(dims, np.ndarray) else []
    return RULES["Squeeze"].apply(ctx, x, squeeze_dims=named)


@lite_op("SOFTMAX")
def softmax(ctx: TfContext, options: Any, x: Tensor) -> Tensor:
    """Softmax of beta x along the last dimension."""
    return RULES["Softmax"].apply(ctx, emit.weighted(ctx.g, x, options.Beta()))


@lite_op("CONCATENATION")
def concatenation(ctx: TfContext, options: Any, *parts: Tensor) -> Tensor:
    """Concatenate along an axis."""
    y = emit.concat(ctx.g, parts, options.Axis() % parts[0].rank)
    return activated(ctx, y, options.FusedActivationFunction())


@lite_op("GELU")
def gelu(ctx: TfContext, options: Any, x: Tensor) -> Tensor:
    """x Φ(x), exact or by the tanh formula."""
    return emit_activation.gelu(ctx.g, x, "tanh" if options.Approximate() else "none")


@lite_op("CAST")
def cast(ctx: TfContext, options: Any, x: Tensor) -> Tensor:
    """Convert the elements."""
    kinds = {0: F32, 2: I32, 4: I64}
    kind = options.OutDataType() if options else 0
    if kind not in kinds:
        raise Unsupported(f"a cast to type {kind}")
    return emit.cast(ctx.g, x, kinds[kind])


@lite_op("GATHER")
def gather(ctx: TfContext, options: Any, x: Tensor, index: Tensor) -> Tensor:
    """Read x at these places of a dimension."""
    settings = {"batch_dims": options.BatchDims()}
    return RULES["GatherV2"].apply(ctx, x, index, np.array(options.Axis()), **settings)


@lite_op("TRANSPOSE_CONV", static=(0,), wishes={1: DEPTHWISE})
def transpose_conv(
    ctx: TfContext,
    options: Any,
    sizes: np.ndarray,
    weight: Tensor,
    x: Tensor,
    bias: Tensor | None = None,
) -> Tensor:
    """Transposed convolution by (O, KH, KW, I)."""
    shape = (x.shape[0], *(int(size) for size in sizes[1:]))
    whole = plain(x.value) if x.layout == (0, 1, 2, 3) else x
    window = window_of(
        (shape[1], shape[2]),
        (weight.shape[1], weight.shape[2]),
        (options.StrideH(), options.StrideW()),
        (1, 1),
        ("SAME", "VALID")[options.Padding()],
    )
    y = plain(
        ctx.g.conv2d_dx(
            stored(ctx.g, whole, (0, 1, 2, 3)),
            stored(ctx.g, weight, DEPTHWISE),
            input_shape=shape,
            stride=window.stride,
            padding=window.padding,
            dilation=window.dilation,
        )
    )
    y = y if bias is None else emit.elementwise(ctx.g, "add", y, bias)
    activation = getattr(options, "FusedActivationFunction", lambda: 0)()
    return activated(ctx, y, activation)
