"""Branches on tensor values in a traced module.

A compiled model runs the same steps for all data, so a branch must not depend on data. Two kinds do
not: a decision that reads only constants (a mask that forward builds), and one whose other branch
only raises an error (a check of the inputs), which the data must pass as the examples do. Checks
for non-finite numbers are assumed to find none. A buffer that forward does not change, such as a
switch, has its value at compile time.
"""

import copy
import dis
import operator
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, TypeVar

import torch
from torch.fx import Node
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot
from torch.overrides import TorchFunctionMode

from pockengine.frontends.faults import OURS, theirs
from pockengine.frontends.torch.nodes import quoted

T = TypeVar("T")
Site = tuple[str, int, int]
"""File, line, and the number of earlier decisions on this line."""
Line = tuple[str, int]

DECISIONS = {torch.Tensor.__bool__, torch.equal, torch.allclose, torch.Tensor.equal}
DECISIONS |= {torch.Tensor.allclose}
NUMBERS = {torch.Tensor.item, torch.Tensor.__int__, torch.Tensor.__float__, torch.Tensor.__index__}
NUMBERS |= {torch.Tensor.tolist}
INTEGERS = {torch.int8, torch.int16, torch.int32, torch.int64}
CONVERSIONS = {torch.Tensor.__int__, torch.Tensor.__float__, torch.Tensor.__index__}
"""Functions that must return a Python number."""

FINITE = {"isfinite", "isnan", "isinf"}
OF_FINITE = {
    "all",
    "any",
    "logical_not",
    "bitwise_not",
    "logical_or",
    "logical_and",
    "_is_all_true",
}
TORCH = f"{Path(torch.__file__).parent}/"
INTERNALS = tuple(f"{TORCH}{part}" for part in ("_", "fx/", "export/", "overrides"))


class Unanswered(Exception):
    """The trace needs the module's decision on its examples."""


class Undecided(Exception):
    """Other data may take another branch here."""


class NumberOfData(Undecided):
    """Data become a Python number here, which a trace cannot follow."""


class Decisions(TorchFunctionMode):
    """Answers decisions on traced tensors that are the same for all data."""

    def __init__(self, answers: "Answers | None", module: torch.nn.Module) -> None:
        """Without `answers`, a decision on data or on a buffer of the module raises Unanswered."""
        super().__init__()
        self._answers = answers
        self._seen: Counter[Line] = Counter()
        self._constants = Constants({} if answers is None else answers.buffers, module)
        self._module = module

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Answer a decision, or call the function."""
        kwargs = kwargs or {}
        if func in (torch.Tensor.__getitem__, torch.Tensor.__setitem__):
            args = (args[0], self._with_numbers(args[1]), *args[2:])
        if func in DECISIONS or func in NUMBERS:
            nodes = [
                traced_node(argument) for argument in args if isinstance(argument, torch.Tensor)
            ]
            known = [node for node in nodes if node is not None]
            if known and len(known) == len(nodes):
                real = [self._constants.value(node) for node in known]
                if all(value is not None for value in real):
                    return untraced(lambda: func(*real, *args[len(real) :], **kwargs))
                if func in DECISIONS:
                    return self._answer(known[0], _site(self._seen, sys._getframe(1)))
                if self._answers is None and self._is_switch(known[0]):
                    raise Unanswered
                if func in CONVERSIONS:
                    raise NumberOfData(quoted(*line_of(sys._getframe(1))))
        return theirs(func, *args, **kwargs)

    def _with_numbers(self, index: Any) -> Any:
        """Replace each constant integer of an index, which PyTorch converts without asking."""
        if isinstance(index, tuple):
            return tuple(map(self._with_numbers, index))
        whole = isinstance(index, torch.Tensor) and index.dim() == 0 and index.dtype in INTEGERS
        node = traced_node(index) if whole else None
        value = None if node is None else self._constants.value(node)
        return index if value is None else untraced(value.item)

    def _is_switch(self, node: Node) -> bool:
        """Whether a value is computed from integers in buffers only."""
        buffers = {traced_node(buffer) for buffer in self._module.buffers()}
        seen, waiting = {node}, [node]
        while waiting:
            name = waiting.pop()
            value = name.meta.get("val")
            floats = isinstance(value, torch.Tensor) and value.is_floating_point()
            if floats or (name.op == "placeholder" and name not in buffers):
                return False
            waiting += [source for source in name.all_input_nodes if source not in seen]
            seen.update(name.all_input_nodes)
        return True

    def _answer(self, node: Node, site: Site) -> bool:
        if self._answers is None:
            raise Unanswered
        answer = self._answers.taken.get(site)
        if answer is None or not (_asks_finite(node) or site in self._answers.checks):
            raise Undecided(quoted(site[0], site[1]))
        return answer


@dataclass(frozen=True)
class Answers:
    """A module's decisions on its examples, and those whose other answer is an error."""

    taken: Mapping[Site, bool]
    checks: frozenset[Site]
    buffers: Mapping[str, torch.Tensor]
    """Buffers that the module does not change."""


def answers_of(module: torch.nn.Module, args: Any, kwargs: Any) -> Answers:
    """Run a copy of the module on its examples, and again with each decision inverted."""
    copied = copied_module(module)
    before = {name: buffer.clone() for name, buffer in copied.named_buffers()}

    def run(flipped: Site | None) -> Mapping[Site, bool]:
        inputs = copy.deepcopy((args, kwargs))
        with torch.no_grad(), torch.random.fork_rng(), DecisionRecorder(flipped) as watch:
            copied(*inputs[0], **inputs[1])
        return watch.answers

    taken = run(None)
    after = dict(copied.named_buffers())
    unchanged = {name: x for name, x in before.items() if torch.equal(x, after.get(name, x))}
    checks = set()
    for site in taken:
        try:
            run(site)
        except Exception as error:  # whatever the module raises
            if own_error(error):
                checks.add(site)
    return Answers(taken, frozenset(checks), unchanged)


def copied_module(module: torch.nn.Module, shared: Iterable[torch.Tensor] = ()) -> torch.nn.Module:
    """Copy a module, except for `shared` tensors.

    Saved results of its computations, as of the old weight_norm, are detached.
    """
    values = [value for part in module.modules() for value in vars(part).values()]
    computed = [x for x in values if isinstance(x, torch.Tensor) and not x.is_leaf]
    memo = {id(x): x.detach().clone() for x in computed}
    return copy.deepcopy(module, {**memo, **{id(x): x for x in shared}})


class DecisionRecorder(TorchFunctionMode):
    """Records each decision of a module that runs on real tensors; inverts one of them."""

    def __init__(self, flipped: Site | None) -> None:
        super().__init__()
        self.answers: dict[Site, bool] = {}
        self._flipped = flipped
        self._seen: Counter[Line] = Counter()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call the function, and record its decision."""
        result = func(*args, **(kwargs or {}))
        if func in DECISIONS:
            site = _site(self._seen, sys._getframe(1))
            self.answers[site] = bool(result)
            return bool(result) != (site == self._flipped)
        return result


class Constants:
    """Values of traced names that depend on no parameter, input or other buffer."""

    def __init__(
        self,
        buffers: Mapping[str, torch.Tensor] | None = None,
        module: torch.nn.Module | None = None,
    ) -> None:
        """Set the values of some buffers of the module."""
        self._values: dict[Node, Any] = {}
        self._known: set[Node] = set()
        self._buffers = buffers or {}
        self._module = module

    def value(self, node: Node) -> torch.Tensor | None:
        """Run the operators traced since the last call, as far as they read only constants."""
        mode = get_proxy_mode()
        assert mode is not None
        later = [earlier for earlier in node.graph.nodes if earlier not in self._known]
        self._known.update(later)
        self._take_buffers(set(later))
        untraced(lambda: self._take_all(mode.tracer.root, later))
        return self._values.get(node)

    def _take_buffers(self, later: set[Node]) -> None:
        for name, traced in () if self._module is None else self._module.named_buffers():
            node = traced_node(traced) if name in self._buffers else None
            if node is not None and node in later and node.op == "placeholder":
                self._values[node] = untraced(self._buffers[name].clone)

    def _take_all(self, root: Any, nodes: Sequence[Node]) -> None:
        for node in nodes:
            self._take(root, node)

    def _take(self, root: Any, node: Node) -> None:
        if node.op == "get_attr":
            attribute: Any = getattr(root, str(node.target), None)
            if type(attribute) is torch.Tensor:
                self._values[node] = attribute.clone()
        if node.target is operator.getitem:
            sequence, index = node.args
            if sequence in self._values:
                self._values[node] = self._values[sequence][index]
            return
        if not isinstance(node.target, torch._ops.OpOverload):
            return
        constant = all(source in self._values for source in node.all_input_nodes)
        if constant and torch.Tag.nondeterministic_seeded not in node.target.tags:
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), self._values.__getitem__)
            self._values[node] = node.target(*args, **kwargs)
        elif node.target._schema.is_mutable:
            self._forget(node)

    def _forget(self, node: Node) -> None:
        """Forget constants that this operator overwrites."""
        written = [self._values[x] for x in node.all_input_nodes if x in self._values]
        storages = set().union(*map(_storages, written))
        for name in [x for x, value in self._values.items() if _storages(value) & storages]:
            del self._values[name]


def untraced(work: Callable[[], T]) -> T:
    """Run this in a separate thread, without a trace."""
    with ThreadPoolExecutor(1) as other:
        return other.submit(work).result()


def _storages(value: Any) -> set[int]:
    """Return the memory of a value, or of a list of values."""
    parts = value if isinstance(value, (list, tuple)) else [value]
    return {part.untyped_storage()._cdata for part in parts if isinstance(part, torch.Tensor)}


def traced_node(tensor: torch.Tensor) -> Node | None:
    """Return the name of a traced tensor; None outside a trace."""
    mode = get_proxy_mode()
    slot = None if mode is None else get_proxy_slot(tensor, mode.tracer, None)
    return None if slot is None else slot.proxy.node


def _site(seen: Counter[Line], frame: FrameType | None) -> Site:
    """Return the line of the module's own code that decides."""
    place = line_of(frame)
    seen[place] += 1
    return (*place, seen[place])


def line_of(frame: FrameType | None) -> Line:
    """Return the innermost line of the module's own code."""
    while frame is not None and _internal(frame.f_code.co_filename):
        frame = frame.f_back
    assert frame is not None
    return (frame.f_code.co_filename, frame.f_lineno)


def _internal(filename: str) -> bool:
    return filename.startswith((*OURS, *INTERNALS))


def _asks_finite(node: Node) -> bool:
    """Whether a decision only checks that numbers are finite."""
    if node.op != "call_function":
        return False
    name = str(node.target).removeprefix("aten.").partition(".")[0]
    if name in FINITE:
        return True
    return name in OF_FINITE and all(_asks_finite(source) for source in node.all_input_nodes)


def own_error(error: BaseException) -> bool:
    """Whether a `raise` or `assert` of the module's code raised, rather than PyTorch itself."""
    traceback: TracebackType | None = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None or _internal(traceback.tb_frame.f_code.co_filename):
        return False
    code = traceback.tb_frame.f_code.co_code
    return dis.opname[code[traceback.tb_lasti]] == "RAISE_VARARGS"
