"""Share functions between kernels, and pass the differing numbers as arguments.

A kernel for one shape has all its sizes as constants. On a device with code in flash that costs
more than passing them: kernels with equal drafts become one function, which takes the differing
numbers as arguments.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pockengine.backends.native.kernel import Kernel, KernelDraft, shared_kernel
from pockengine.backends.native.numbers import Number


@dataclass(frozen=True)
class Call:
    """The function that computes a kernel, and its number arguments."""

    kernel: Kernel
    numbers: tuple[Number, ...] = ()


def apart(kernels: Iterable[Kernel]) -> dict[str, Call]:
    """Return each kernel's call by symbol, without sharing."""
    return {kernel.symbol: Call(kernel) for kernel in kernels}


def share(kernels: Iterable[Kernel]) -> dict[str, Call]:
    """Return each kernel's call by symbol; equal drafts share one function."""
    calls = apart(kernels)
    groups: dict[tuple[object, ...], list[tuple[str, KernelDraft]]] = {}
    for symbol, call in calls.items():
        if call.kernel.draft is not None:
            groups.setdefault(call.kernel.draft.key, []).append((symbol, call.kernel.draft))
    for group in groups.values():
        if len(group) > 1:
            calls |= _calls(dict(group))
    return calls


def _calls(group: Mapping[str, KernelDraft]) -> dict[str, Call]:
    """Return the calls of kernels that share a function."""
    rows = [draft.text.numbers for draft in group.values()]
    fields = _fields(list(zip(*rows, strict=True)))
    kernel = shared_kernel(next(iter(group.values())), fields)
    first = {index: place for place, index in reversed([*enumerate(fields)]) if index is not None}
    places = [first[index] for index in range(len(first))]
    return {
        symbol: Call(kernel, tuple(row[place] for place in places))
        for symbol, row in zip(group, rows, strict=True)
    }


def _fields(columns: Sequence[tuple[Number, ...]]) -> list[int | None]:
    """Return the argument index of each number; None for one that is always the same.

    Numbers that are equal in every kernel are passed once.
    """
    indices: dict[tuple[Number, ...], int] = {}
    return [
        None
        if len(set(column)) == 1 and not column[0].is_passed
        else indices.setdefault(column, len(indices))
        for column in columns
    ]
