"""Trace a PyTorch module for training, with temporary settings, and explain failures.

Models of transformers are set to keep no cache of keys, to route to experts without sorting, and
that labels are classes; their configurations are as before afterwards.
"""

import copy
import logging
import re
import traceback
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.distributions import Distribution
from torch.export import _trace
from torch.utils import _pytree as pytree

from pockengine.errors import ImportModelError, PockEngineError
from pockengine.frontends.faults import OURS, own_fault, theirs
from pockengine.frontends.torch.blocks import inline_blocks
from pockengine.frontends.torch.counts import Guards
from pockengine.frontends.torch.data_checks import answer_of_check, checks_passed
from pockengine.frontends.torch.dead import drop_dead
from pockengine.frontends.torch.decisions import (
    TORCH,
    Answers,
    Decisions,
    Line,
    NumberOfData,
    Unanswered,
    Undecided,
    answers_of,
    copied_module,
)
from pockengine.frontends.torch.emptied import guards_of_nothing
from pockengine.frontends.torch.gradients import own_gradients
from pockengine.frontends.torch.marks import pick_marked
from pockengine.frontends.torch.nodes import quoted
from pockengine.frontends.torch.packed import PackedSequences
from pockengine.frontends.torch.places import Distances
from pockengine.frontends.torch.replaced import replaced
from pockengine.frontends.torch.selected import SameSizes, select_all
from pockengine.frontends.torch.stacks import short_stacks
from pockengine.frontends.torch.stand_ins import stand_ins
from pockengine.frontends.torch.strides import follow_memory
from pockengine.frontends.torch.tied import join_tied
from pockengine.frontends.torch.transforms import transforms
from pockengine.frontends.torch.unfilled import standing_in

if TYPE_CHECKING:
    from torch.export import ExportedProgram


ROWS = "Size-like symbols: u"
"""PyTorch's message for a branch on the number of selected rows."""


def trace(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> "ExportedProgram":
    """Trace the module; constructs that torch cannot trace become errors in the user's terms."""
    with settings(module, kwargs), standing_in(module):
        program = _traced(module, args, kwargs)
    join_tied(program, module)
    inline_blocks(program)
    pick_marked(program)
    drop_dead(program)
    select_all(program)
    follow_memory(program)
    return program


class _AsksForNumber(ImportModelError):
    """The module decides by a number of the data."""

    line: Line | None = None
    """Where it compares the number."""
    counted = True
    """Whether the number is of selected rows."""


@dataclass
class _Decisions:
    """What the trace of a module cannot decide: answers, guards and checks of data."""

    answers: Answers | None = None
    guards: set[Line] = field(default_factory=set)
    """Lines whose guards of no rows may be passed."""
    checks: dict[Line, bool] = field(default_factory=dict)
    """How numbers compare on lines that only check them."""


def _traced(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> "ExportedProgram":
    """Trace the module, after running it for decisions that a trace cannot make."""
    known = _Decisions()
    while True:
        try:
            return _export(module, args, kwargs, known)
        except Unanswered:
            known.answers = _answers(module, args, kwargs)
        except _AsksForNumber as error:
            line = error.line
            if line is not None and line not in known.checks:
                answer = answer_of_check(module, args, kwargs, line)
                if answer is not None:
                    known.checks[line] = answer
                    continue
            if known.guards or not error.counted:
                raise
            known.guards = guards_of_nothing(module, args, kwargs)
            if not known.guards:
                raise


def _export(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], known: _Decisions
) -> "ExportedProgram":
    guards = Guards(known.guards)
    try:
        with (
            _silence(),
            short_stacks(),
            _unchanged(module),
            own_gradients(module),
            transforms(),
            Decisions(known.answers, module),
            PackedSequences(),
            Distances(),
            stand_ins(),
            checks_passed(known.checks),
            SameSizes(filled=bool(known.guards)),
            guards,
        ):
            return theirs(torch.export.export, module, args, kwargs, strict=False)
    except (Unanswered, ImportModelError):
        raise
    except Undecided as error:
        kind = _AsksForNumber if guards.queried else ImportModelError
        words = _conversion if isinstance(error, NumberOfData) else _branches
        raise kind(f"{type(module).__name__} {words(str(error))}") from error
    except Exception as error:  # torch.export raises whatever the module's own code raises
        raise _explained(error, module, args, kwargs, counted=guards.queried) from error


@contextmanager
def _silence() -> Iterator[None]:
    """Prevent a failed trace from printing its graph and advice; the error has all details."""
    with ExitStack() as stack:
        for name in ("torch.fx.experimental.symbolic_shapes", "torch._subclasses.fake_tensor"):
            log = logging.getLogger(name)
            stack.callback(log.setLevel, log.level)
            log.setLevel(logging.CRITICAL)
        stack.enter_context(replaced(_trace, "print", lambda *_, **__: None))
        yield


@contextmanager
def _unchanged(module: torch.nn.Module) -> Iterator[None]:
    """Restore attributes that a module assigns, and the dicts in them: its hooks and caches.

    In a trace tensors are not real. A model of transformers registers hooks in its first call, and
    an attribute says that it has: without it, every trace would add its hooks again.
    """
    attributes = [vars(part) for part in module.modules()]
    dicts = [x for each in attributes for x in each.values() if type(x) in (dict, OrderedDict)]
    before = [(each, dict(each)) for each in (*attributes, *dicts)]
    try:
        yield
    finally:
        for each, contents in before:
            each.clear()
            each.update(contents)


def _answers(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Answers:
    try:
        return answers_of(module, args, kwargs)
    except Exception as error:  # whatever the module's own code raises
        raise _explained(error, module, args, kwargs) from error


def _explained(
    error: Exception,
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    counted: bool = False,
) -> PockEngineError:
    """Explain in the user's terms why a module could not be run or traced, or that we failed.

    `counted` means that the module converted a mask's count to a Python number.
    """
    if "data-dependent" in str(error):
        where = _user_place(error) or _first_line(error)
        words = _rows(where) if ROWS in str(error) else _branches(where)
        asks = _AsksForNumber(f"{type(module).__name__} {words}")
        asks.line, asks.counted = _user_line(error), counted or ROWS in str(error)
        return asks
    known = _known_words(error, type(module).__name__)
    if known is not None:
        return ImportModelError(known)
    name, line = type(module).__name__, _user_place(error)
    place = f" ({line})" if line else ""
    if not _runs(module, args, kwargs):
        shapes = [tuple(value.shape) for value in (*args, *kwargs.values())]
        return ImportModelError(
            f"{name} does not run on example inputs of shape {shapes}: {_first_line(error)}; check "
            f"that module(*example_inputs) works{place}"
        )
    return own_fault(error, f"PyTorch traced {name}", "torch") or ImportModelError(
        f"{name} runs on its example inputs, but not while PyTorch traces it: "
        f"{_first_line(error)}; {_mask_advice(error)}{place}"
    )


def _mask_advice(error: Exception) -> str:
    """Return a hint for a module that fails only in tracing."""
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    if any("/transformers/" in file and "mask" in Path(file).name for file in files):
        return (
            "transformers makes a mask where it sees a trace: give attention_mask in four "
            "dimensions, as it is added to the scores"
        )
    return "leave out of forward what does something else when it is traced"


def _known_words(error: Exception, name: str) -> str | None:
    """Return the message for an error that PyTorch raises for a known reason."""
    line = _user_place(error)
    place = f" ({line})" if line else ""
    text = f"{type(error).__name__}: {error}"
    if "DataDependent" in text:
        return f"{name} {_branches(_user_place(error) or _first_line(error))}"
    if text.partition(": ")[2].startswith(("Pending unbacked", "only integers, slices")):
        return f"{name} {_places(place)}"
    kind = re.match(r"Found <class '(.*)'> in output, which is not a known type", str(error))
    if kind is not None:
        return (
            f"{name}.forward returns a {kind[1]}; return tensors, or lists, tuples and dicts of "
            "them"
        )
    if re.fullmatch(r"aten\.\S+", _first_line(error)):
        return (
            f"{name} cannot be imported: PyTorch cannot trace {_first_line(error)}; express it by "
            f"other operators or leave it out of the module{place}"
        )
    return None


def _runs(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a copy of the module runs without a trace."""
    try:
        copied, inputs = copied_module(module), copy.deepcopy((args, kwargs))
        with torch.no_grad(), torch.random.fork_rng():
            copied(*inputs[0], **inputs[1])
    except Exception:  # whatever the module's own code raises
        return False
    return True


def _rows(where: str) -> str:
    return (
        f"decides by how many rows are selected ({where}); leave the test out: where none is, sums "
        "over them are 0 and writes of them change nothing"
    )


def _branches(where: str) -> str:
    return (
        f"decides by the values in a tensor ({where}); a compiled model does the same steps for "
        "any data: use torch.where, or move the decision out of the module"
    )


def _places(place: str) -> str:
    return (
        f"reads or writes at a place that is data{place}, which PyTorch cannot trace so: take it "
        "by .item(), say torch._check(place >= 0) and torch._check(place < size), and slice by "
        "x.narrow(dim, place, length)"
    )


def _conversion(where: str) -> str:
    return (
        f"makes a number of Python of a tensor ({where}), which is another one for other data: "
        "compute with the tensor, or take a place to read or write at by .item()"
    )


@contextmanager
def settings(module: torch.nn.Module, kwargs: Mapping[str, Any]) -> Iterator[None]:
    """Set the configuration fields of the module's parts that training requires."""
    labels = kwargs.get("labels")
    classes = labels is not None and not labels.is_floating_point()
    with ExitStack() as stack:
        for config in _configurations(module):
            if getattr(config, "use_cache", None):
                stack.enter_context(_attribute(config, "use_cache", False))
            if classes and _may_classify(config):
                value = "single_label_classification"
                stack.enter_context(_attribute(config, "problem_type", value))
            if hasattr(config, "_experts_implementation"):
                stack.enter_context(_attribute(config, "_experts_implementation", "batched_mm"))
        handle = module.register_forward_hook(lambda _, __, output: _without_caches(output))
        stack.callback(handle.remove)
        # A distribution's arguments are data, so checks of them are no steps.
        before = Distribution._validate_args
        stack.callback(Distribution.set_default_validate_args, before)
        Distribution.set_default_validate_args(False)
        yield


def _without_caches(output: Any) -> Any:
    """Return a module's results without its cache of keys, which PEFT's models return."""
    return pytree.tree_map(lambda x: None if _is_cache(x) else x, output, is_leaf=_is_cache)


def _is_cache(value: Any) -> bool:
    return any(
        base.__name__ == "Cache" and base.__module__.startswith("transformers.")
        for base in type(value).__mro__
    )


def _configurations(module: torch.nn.Module) -> list[Any]:
    """Return the configurations of all parts, each once."""
    configs = [getattr(part, "config", None) for part in module.modules()]
    return list({id(config): config for config in configs if config is not None}.values())


def _may_classify(config: Any) -> bool:
    """Whether a model infers its task from its labels, and may infer classification."""
    return getattr(config, "problem_type", "") is None and getattr(config, "num_labels", 1) > 1


@contextmanager
def _attribute(thing: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(thing, name)
    setattr(thing, name, value)
    try:
        yield
    finally:
        setattr(thing, name, before)


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), repr(error))


def _user_place(error: BaseException) -> str:
    """Return the line of the user's own files where the error arose, from the traceback."""
    line = _user_line(error)
    return "" if line is None else quoted(*line)


def _user_line(error: BaseException) -> Line | None:
    found = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        filename = frame.f_code.co_filename
        if not filename.startswith(("<", TORCH, *OURS)):
            found = (filename, line)
    return found
