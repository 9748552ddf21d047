"""Schedules found by TVM's tuner, as text: its transformation steps of a kernel.

A trace is MetaSchedule's, as JSON. It comes from a file, so it is checked before TVM sees it: only
the steps of a CPU tuner are allowed, because TVM has steps that insert text into the code. Beyond
that, TVM refuses a trace that does not fit the kernel.
"""

import hashlib
import json
from typing import Any

import tvm
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import Trace

STEPS = frozenset(
    (
        *("GetSBlock", "GetLoops", "GetChildBlocks", "GetConsumers", "GetProducers"),
        *("SamplePerfectTile", "SampleCategorical", "SampleComputeLocation"),
        *("Split", "Fuse", "Reorder", "AddUnitLoop", "Vectorize", "Unroll"),
        *("ComputeInline", "ReverseComputeInline", "ComputeAt", "ReverseComputeAt"),
        *("CacheRead", "CacheWrite", "DecomposeReduction", "RFactor"),
        *("Annotate", "Unannotate", "EnterPostproc"),
    )
)
"""Allowed steps of a trace. Parallel is excluded: kernels run in one thread."""

NOTES = frozenset(
    (
        "meta_schedule.tiling_structure",
        "meta_schedule.vectorize",
        "meta_schedule.unroll_explicit",
        "pragma_auto_unroll_max_step",
        "pragma_unroll_explicit",
    )
)
"""Allowed annotations of a loop or block; TVM's other pragmas may contain code."""

MOST_UNROLLED = 512
LONGEST = 1 << 16
"""Maximum characters of a trace."""


def key_of(function: Any) -> str:
    """Return a kernel's key in tables: a digest of its text and of TVM's release."""
    text = function.without_attr("global_symbol").script(show_meta=True)
    return hashlib.sha256(f"{tvm.__version__}\n{text}".encode()).hexdigest()[:16]


def normalized(function: Any) -> tvm.IRModule:
    """Return a module with a copy of a kernel, under the name used in traces.

    A deep copy: TVM 0.27 changes a kernel's loops in place if a trace first annotates its root
    block, even if another function shares its body.
    """
    whole = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    return tvm.ir.load_json(tvm.ir.save_json(whole))


def text_of(trace: Trace) -> str:
    """Return a trace as JSON."""
    return json.dumps(trace.as_json(), default=_number, separators=(",", ":"))


def _number(constant: Any) -> int | float:
    """Return the value of a TVM constant."""
    value: int | float = constant.value
    return value


def applied(function: Any, text: str) -> Any:
    """Return a kernel scheduled by a trace; ValueError if it is invalid or does not fit."""
    schedule = Schedule(normalized(function))
    parsed = _checked(text)
    try:
        Trace.apply_json_to_schedule(parsed, schedule)
    except Exception as error:  # TVM's errors have no base of their own
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ValueError(lines[-1] if lines else type(error).__name__) from error
    symbol = function.attrs.get("global_symbol", "main")
    return schedule.mod["main"].with_attr("global_symbol", symbol)


def _checked(text: str) -> list[Any]:
    """Parse a trace; ValueError for a step that a CPU tuner does not use."""
    if len(text) > LONGEST:
        raise ValueError(f"a trace of {len(text)} characters; {LONGEST} are taken")
    try:
        parsed = json.loads(text)
        steps, decisions = parsed
        rows = [(name, list(inputs), list(attrs), list(out)) for name, inputs, attrs, out in steps]
        places = [int(place) for place, _ in decisions]
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"no trace of MetaSchedule: {error}") from error
    for name, inputs, attrs, _ in rows:
        if name not in STEPS:
            raise ValueError(f"{name!r} is not a step of a CPU tuner")
        if name in ("Annotate", "Unannotate") and not NOTES.issuperset(attrs):
            raise ValueError(f"{attrs!r} is not an annotation of a CPU tuner")
        numbers = [each for each in (*inputs, *attrs) if isinstance(each, int | float)]
        if name == "Annotate" and any(number > MOST_UNROLLED for number in numbers):
            raise ValueError(f"the note {attrs!r} of {numbers}; at most {MOST_UNROLLED}")
    if any(not 0 <= place < len(rows) for place in places):
        raise ValueError("a decision on a step that is not there")
    return [steps, decisions]
