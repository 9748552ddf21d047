"""Build a program's models into one library: TVM's ONNX importer, its passes, and LLVM."""

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import tvm
from tvm import relax
from tvm.relax.backend.cpu_generic import pipeline
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.relax.frontend.onnx import from_onnx
from tvm.tirx import PrimFunc

from pockengine.backends.native.build import link_library
from pockengine.backends.tvm.anonymous import make_anonymous, node_name
from pockengine.backends.tvm.nans import keep_nans
from pockengine.backends.tvm.schedules import scheduled
from pockengine.backends.tvm.traces import applied, key_of
from pockengine.devices.schema import Device
from pockengine.errors import CompileError

Traces = Mapping[str, str]
"""Tuned schedules by kernel key."""

GNU = "linux-gnu.2.28"
"""The C library that TVM's own runtime needs."""

WIDE = 64
"""Minimum vector bytes for register tiles of 8 rows of 16 sums; narrower vectors get 4 rows."""


def build_library(
    models: Mapping[str, onnx.ModelProto], device: Device, path: Path, tuned: Traces | None = None
) -> None:
    """Build a function per model; CompileError with TVM's message if it refuses one."""
    module = module_of(models)
    try:
        executable = compiled(module, device, tuned)
    except CompileError:  # ours, about tuned schedules
        raise
    except Exception as error:  # TVM's exceptions have no common base class
        raise CompileError(f"TVM {tvm.__version__} cannot build it: {_words(error)}") from error

    def link(out: str, objects: Sequence[str], **_: object) -> None:
        link_library(_beside_runtime(device), [Path(made) for made in objects], Path(out))

    executable.export_library(str(path), fcompile=link)


def module_of(models: Mapping[str, onnx.ModelProto]) -> tvm.IRModule:
    """Import models as functions of one module; CompileError if TVM refuses one."""
    builder = relax.BlockBuilder()
    for name, model in models.items():
        _append(builder, name, _imported(name, model))
    return builder.get()


def compiled(module: tvm.IRModule, device: Device, tuned: Traces | None = None) -> Any:
    """Compile a module: TVM's passes for CPUs, with our schedules of kernels in between."""
    target = target_of(device)
    after = [*pipeline.dataflow_lower_passes(target), *pipeline.finalize_passes(target)]
    kernels = _scheduled(legal(module, target), rows_of(device), tuned or {})
    with target:
        lowered = tvm.transform.Sequential(after)(kernels)
    return tvm.compile(lowered, target=target, relax_pipeline=None)


def legal(module: tvm.IRModule, target: tvm.target.Target) -> tvm.IRModule:
    """Return a module of plain loops, fused by TVM's own passes."""
    before = [*pipeline.library_dispatch_passes(target), *pipeline.legalize_passes(target)]
    with target:
        return tvm.transform.Sequential(before)(module)


def target_of(device: Device) -> tvm.target.Target:
    """Return the LLVM target of a device."""
    if device.toolchain.cpu == "native":
        return tvm.target.Target({"kind": "llvm", "mcpu": tvm.target.codegen.llvm_get_system_cpu()})
    triple = device.toolchain.target.replace("linux-musl", "linux-gnu")
    mcpu = device.toolchain.cpu.replace("_", "-")
    return tvm.target.Target({"kind": "llvm", "mtriple": triple, "mcpu": mcpu})


def rows_of(device: Device) -> int:
    """Return the rows of a register tile of sums for a device."""
    return 8 if device.cpu.vector_bytes >= WIDE else 4


def _scheduled(module: tvm.IRModule, rows: int, tuned: Traces) -> tvm.IRModule:
    """Schedule a module's kernels: tuned, or by the device's registers."""
    functions = {}
    for var, function in module.functions_items():
        if isinstance(function, PrimFunc):
            key = key_of(function) if tuned else ""
            function = (
                _tuned(var.name_hint, function, tuned[key])
                if key in tuned
                else scheduled(function, rows)
            )
        functions[var] = function
    return tvm.IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)


def _tuned(name: str, function: Any, trace: str) -> Any:
    try:
        return applied(function, trace)
    except ValueError as error:
        raise CompileError(
            f"the tuned schedule of {name} does not fit: {error}; run pockengine tune again, into "
            "a new file"
        ) from error


@mutator
class _Renamed(PyExprMutator):  # type: ignore[misc]  # TVM has no types
    """Replaces the functions that an expression calls."""

    def __init__(self, functions: Mapping[tvm.ir.GlobalVar, tvm.ir.GlobalVar]) -> None:
        super().__init__()
        self._functions = functions

    def visit_global_var_(self, op: tvm.ir.GlobalVar) -> tvm.ir.GlobalVar:
        """Return the replacement."""
        return self._functions.get(op, op)


def _append(builder: relax.BlockBuilder, entry: str, module: tvm.IRModule) -> None:
    """Append an entry's module; its helper functions' names may collide with another's."""
    functions = {
        var: builder.add_func(function, var.name_hint)
        for var, function in module.functions_items()
        if not isinstance(function, relax.Function)
    }
    called = _Renamed(functions).visit_expr(module["main"])
    builder.add_func(called.with_attr("global_symbol", entry), entry)


def _imported(entry: str, model: onnx.ModelProto) -> tvm.IRModule:
    """Import a model; an error of TVM is reported with our node and the user's layer."""
    names = {node_name(number): node.name for number, node in enumerate(model.graph.node)}
    kinds = {node.op_type: node.name for node in model.graph.node}
    anonymous = onnx.ModelProto()
    anonymous.CopyFrom(model)
    keep_nans(anonymous)
    make_anonymous(anonymous)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about its renaming, and its own deprecations
            return from_onnx(anonymous, keep_params_in_input=False)
    except Exception as error:
        words = _words(error)
        known = [full for short, full in names.items() if re.search(rf"\b{short}\b", words)]
        known += [full for kind, full in kinds.items() if re.search(rf"\b{kind}\b", words)]
        place = f" ({known[0]})" if known else ""
        raise CompileError(f"TVM {tvm.__version__} refuses {entry}.onnx{place}: {words}") from error


def _beside_runtime(device: Device) -> Device:
    """The device with the C library that its TVM runtime is linked to."""
    target = device.toolchain.target.replace("linux-musl", GNU)
    return replace(device, compiler=replace(device.toolchain, target=target))


def _words(error: Exception) -> str:
    """The last line of TVM's message, without its own source locations."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
