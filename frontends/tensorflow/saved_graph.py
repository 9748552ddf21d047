"""Check a SavedModel before TensorFlow loads it, since loading runs parts of its graph.

The graph is read as plain data. Each operator must be side-effect free, or one of those that save
and restore the file's own variables, in TensorFlow's usual place.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import saved_model_pb2

from pockengine.errors import ImportModelError, reason_of
from pockengine.frontends.tensorflow.control import CONTROL
from pockengine.frontends.tensorflow.fold import BOUNDS
from pockengine.frontends.tensorflow.graph import ASSIGNMENTS, SKIPPED, VARIABLE_OPS
from pockengine.frontends.tensorflow.ops import RULES

_PURE = """
    Acosh Asinh Atanh AvgPool3D BiasAddGrad BroadcastGradientArgs Bucketize ConcatOffset Const
    Conv3D CropAndResize Cross CudnnRNN CudnnRNNBackprop CudnnRNNBackpropV3 CudnnRNNV3 Cumprod
    DepthwiseConv2dNativeBackpropFilter DepthwiseConv2dNativeBackpropInput Diag Digamma
    DisableCopyOnRead EnsureShape GatherNd Igamma InTopKV2 IsFinite IsInf IsNan L2Loss LRN Lgamma
    LinSpace MatrixDiagV3 MatrixInverse MaxPool3D Multinomial NextAfter NonMaxSuppressionV4
    NonMaxSuppressionV5 OptionalFromValue OptionalGetValue OptionalNone ParallelDynamicStitch
    Placeholder PlaceholderWithDefault Qr RandomShuffle RandomStandardNormal RandomUniformInt
    Range ResizeBicubic ReverseSequence RngReadAndSkip Roll ScatterNd SegmentMax SegmentMean
    SegmentSum SigmoidGrad SoftmaxCrossEntropyWithLogits Sort SpaceToDepth
    SparseSoftmaxCrossEntropyWithLogits StatelessRandomNormalV2 StatelessRandomUniformFullIntV2
    StatelessTruncatedNormalV2 StatelessWhile StridedSliceGrad TanhGrad TensorListElementShape
    TensorListPopBack TensorScatterAdd TensorScatterMax TensorScatterMin TensorScatterSub
    TensorScatterUpdate TopKV2 TruncatedNormal Unique UniqueV2 UnsortedSegmentMax
    UnsortedSegmentSum VarHandleOp VarIsInitializedOp Where
"""
PURE = frozenset(_PURE.split())
"""Operators that compute and touch nothing else, beside those of the import itself."""
ALLOWED = frozenset({*RULES, *BOUNDS, *CONTROL, *VARIABLE_OPS, *ASSIGNMENTS, *SKIPPED, *PURE}) - {
    "Print",
    "PrintV2",
}
_SAVING = """
    MergeV2Checkpoints RestoreV2 SaveV2 ShardedFilename StaticRegexFullMatch StringJoin
"""
SAVING = frozenset(_SAVING.split())
"""Operators of TensorFlow's own functions for saving, which a load does not run."""
SAVERS = ("__inference__traced_save_", "__inference__traced_restore_")


def checked_saved_model(path: Path) -> saved_model_pb2.SavedModel:
    """Return a SavedModel's graph; ImportModelError if its load would do more than compute."""
    saved = saved_model_pb2.SavedModel()
    try:
        saved.ParseFromString((path / "saved_model.pb").read_bytes())
    except (DecodeError, OSError, ValueError) as error:
        raise ImportModelError(
            f"{path} cannot be read as a SavedModel: {reason_of(error)}; save it again with "
            "tf.saved_model.save or model.export"
        ) from error
    for graph in saved.meta_graphs:
        _check_graph(path, graph)
    return saved


def without_slots(saved: saved_model_pb2.SavedModel) -> saved_model_pb2.SavedModel:
    """Take an optimizer's states out of the graph of objects.

    TensorFlow's loader adds each by a method of the optimizer, whose class Keras 3 does not have.
    """
    for graph in saved.meta_graphs:
        for node in graph.object_graph_def.nodes:
            del node.slot_variables[:]
    return saved


def _check_graph(path: Path, graph: Any) -> None:
    if graph.asset_file_def or graph.collection_def.get("saved_model_assets") is not None:
        raise ImportModelError(
            f"{path} reads other files (assets); look words up before, and save the model without"
        )
    if not graph.HasField("object_graph_def"):
        raise ImportModelError(
            f"{path} is a SavedModel of TensorFlow 1, whose load runs its graph; save it again by "
            "TensorFlow 2's tf.saved_model.save"
        )
    savers = {f.signature.name for f in graph.graph_def.library.function if _is_saver(f)}
    offered = set(graph.object_graph_def.concrete_functions)
    for node in graph.object_graph_def.nodes:
        offered.update(node.function.concrete_functions)
        offered.add(node.bare_concrete_function.concrete_function_name)
    if savers & offered:
        raise ImportModelError(f"{path} offers {min(savers & offered)}, which writes files, to run")
    _check_nodes(
        path,
        graph.graph_def.node,
        "its main graph",
        extra=set(),
        callers=_saver_nodes(graph),
        savers=savers,
    )
    for function in graph.graph_def.library.function:
        name = function.signature.name
        extra = set(SAVING) if name in savers else set()
        _check_nodes(
            path,
            function.node_def,
            f"the function {name}",
            extra=extra,
            callers=set(),
            savers=savers,
        )


def _is_saver(function: Any) -> bool:
    return str(function.signature.name).startswith(SAVERS)


def _saver_nodes(graph: Any) -> set[str]:
    """Return the nodes of the main graph by which TensorFlow saves and restores variables."""
    saver = graph.saver_def
    return {saver.save_tensor_name.split(":")[0], saver.restore_op_name.split(":")[0]}


def _check_nodes(
    path: Path, nodes: Any, place: str, extra: set[str], callers: set[str], savers: set[str]
) -> None:
    """Refuse an operator that may not stand here, or a saver called by others than `callers`."""
    for node in nodes:
        if node.op not in ALLOWED and node.op not in extra:
            raise ImportModelError(
                f"{path} cannot be read as a SavedModel: {place} has the operator {node.op} at "
                f"{node.name!r}, which may have side effects; express it by others"
            )
        if node.name not in callers and savers.intersection(_called(node)):
            raise ImportModelError(
                f"{path} cannot be read as a SavedModel: {place} writes or reads files at "
                f"{node.name!r}"
            )


def _called(node: Any) -> Iterator[str]:
    """Yield the functions that a node calls."""
    for attribute in node.attr.values():
        if attribute.HasField("func"):
            yield attribute.func.name
        yield from (function.name for function in attribute.list.func)
