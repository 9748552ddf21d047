"""TFLite's operators that are TensorFlow's under another name."""

from collections.abc import Callable
from typing import Any

import numpy as np
from tensorflow.lite.python.schema_py_generated import TensorType

from pockengine.frontends.tensorflow.lite.activation import activated
from pockengine.frontends.tensorflow.lite.registry import (
    LiteContext,
    check_operands,
    lite_op,
    operands_of,
)
from pockengine.frontends.tensorflow.ops import RULES, Known

Settings = Callable[[Any], dict[str, Any]]


def _nothing(options: Any) -> dict[str, Any]:
    return {}


def _keep_dims(options: Any) -> dict[str, Any]:
    return {"keep_dims": bool(options.KeepDims())}


def _half_pixels(options: Any) -> dict[str, Any]:
    return {
        "align_corners": bool(options.AlignCorners()),
        "half_pixel_centers": bool(options.HalfPixelCenters()),
    }


def _places(options: Any) -> dict[str, Any]:
    return {"output_type": np.int64 if options.OutputType() == TensorType.INT64 else np.int32}


def _volume(options: Any) -> dict[str, Any]:
    strides = [options.StrideD(), options.StrideH(), options.StrideW()]
    gaps = [options.DilationDFactor(), options.DilationHFactor(), options.DilationWFactor()]
    return {
        "strides": [1, *strides, 1],
        "dilations": [1, *gaps, 1],
        "padding": ("SAME", "VALID")[options.Padding()],
    }


def _axis(options: Any) -> dict[str, Any]:
    return {"axis": options.Axis()}


# TFLite's operator -> TensorFlow's, and how its attributes are read from the options
SAME: dict[str, tuple[str, Settings]] = {
    "ABS": ("Abs", _nothing),
    "ADD_N": ("AddN", _nothing),
    "ARG_MAX": ("ArgMax", _places),
    "ARG_MIN": ("ArgMin", _places),
    "ATAN2": ("Atan2", _nothing),
    "BATCH_TO_SPACE_ND": ("BatchToSpaceND", _nothing),
    "BATCH_MATMUL": ("BatchMatMulV2", lambda o: {"adj_x": o.AdjX(), "adj_y": o.AdjY()}),
    "CEIL": ("Ceil", _nothing),
    "CONV_3D": ("Conv3D", _volume),
    "CONV_3D_TRANSPOSE": ("Conv3DBackpropInputV2", _volume),
    "COS": ("Cos", _nothing),
    "CUMSUM": ("Cumsum", lambda o: {"exclusive": o.Exclusive(), "reverse": o.Reverse()}),
    "DEPTH_TO_SPACE": ("DepthToSpace", lambda o: {"block_size": o.BlockSize()}),
    "DEQUANTIZE": ("Identity", _nothing),
    "ELU": ("Elu", _nothing),
    "EQUAL": ("Equal", _nothing),
    "EXP": ("Exp", _nothing),
    "EXPAND_DIMS": ("ExpandDims", _nothing),
    "FILL": ("Fill", _nothing),
    "FLOOR": ("Floor", _nothing),
    "FLOOR_DIV": ("FloorDiv", _nothing),
    "FLOOR_MOD": ("FloorMod", _nothing),
    "GATHER_ND": ("GatherNd", _nothing),
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
    "MATRIX_DIAG": ("MatrixDiag", _nothing),
    "MATRIX_SET_DIAG": ("MatrixSetDiag", _nothing),
    "MAXIMUM": ("Maximum", _nothing),
    "MEAN": ("Mean", _keep_dims),
    "MINIMUM": ("Minimum", _nothing),
    "MIRROR_PAD": ("MirrorPad", lambda o: {"mode": ("REFLECT", "SYMMETRIC")[o.Mode()]}),
    "NEG": ("Neg", _nothing),
    "NOT_EQUAL": ("NotEqual", _nothing),
    "ONE_HOT": ("OneHot", _axis),
    "PACK": ("Pack", _axis),
    "PAD": ("Pad", _nothing),
    "PADV2": ("PadV2", _nothing),
    "POW": ("Pow", _nothing),
    "QUANTIZE": ("Identity", _nothing),
    "RANK": ("Rank", _nothing),
    "REDUCE_ALL": ("All", _keep_dims),
    "REDUCE_ANY": ("Any", _keep_dims),
    "REDUCE_MAX": ("Max", _keep_dims),
    "REDUCE_MIN": ("Min", _keep_dims),
    "REDUCE_PROD": ("Prod", _keep_dims),
    "RELU": ("Relu", _nothing),
    "RELU6": ("Relu6", _nothing),
    "RESIZE_BILINEAR": ("ResizeBilinear", _half_pixels),
    "RESIZE_NEAREST_NEIGHBOR": ("ResizeNearestNeighbor", _half_pixels),
    "REVERSE_V2": ("ReverseV2", _nothing),
    "ROUND": ("Round", _nothing),
    "RSQRT": ("Rsqrt", _nothing),
    "SCATTER_ND": ("ScatterNd", _nothing),
    "SELECT": ("Select", _nothing),
    "SELECT_V2": ("SelectV2", _nothing),
    "SIGN": ("Sign", _nothing),
    "SIN": ("Sin", _nothing),
    "SPACE_TO_BATCH_ND": ("SpaceToBatchND", _nothing),
    "SPACE_TO_DEPTH": ("SpaceToDepth", lambda o: {"block_size": o.BlockSize()}),
    "SPLIT": ("Split", lambda o: {"num_split": o.NumSplits()}),
    "SPLIT_V": ("SplitV", _nothing),
    "SQRT": ("Sqrt", _nothing),
    "SQUARE": ("Square", _nothing),
    "SQUARED_DIFFERENCE": ("SquaredDifference", _nothing),
    "SUM": ("Sum", _keep_dims),
    "TANH": ("Tanh", _nothing),
    "TILE": ("Tile", _nothing),
    "TOPK_V2": ("TopKV2", _nothing),
    "TRANSPOSE": ("Transpose", _nothing),
    "UNPACK": ("Unpack", lambda o: {"num": o.Num(), "axis": o.Axis()}),
    "ZEROS_LIKE": ("ZerosLike", _nothing),
}


def _define_same(name: str, op: str, settings: Settings) -> None:
    rule = RULES[op]
    operands = operands_of(rule.apply)

    @lite_op(name, static=rule.static, either=rule.either)
    def apply(ctx: LiteContext, options: Any, *inputs: Any) -> Known:
        present = [x for x in inputs if x is not None]
        check_operands(operands, present)
        result = rule.apply(ctx, *present, **(settings(options) if options else {}))
        kind = getattr(options, "FusedActivationFunction", int)()
        return activated(ctx, result, kind) if kind else result


for _name, (_op, _settings) in SAME.items():
    _define_same(_name, _op, _settings)
