"""Record where an operator was called by one line of the module's code.

For every operator PyTorch formats the whole stack, which took 10 to 18 % of an import; errors name
one line of it.
"""

import linecache
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from torch.fx import proxy

from pockengine.frontends.faults import OURS
from pockengine.frontends.torch.decisions import TORCH
from pockengine.frontends.torch.replaced import replaced

NAME = "CapturedTraceback"
WHOLE: Any = getattr(proxy, NAME, None)
"""PyTorch's class, which captures the whole stack; None in a release without it."""
ELSEWHERE = ("<", TORCH, *OURS)


class _Line:
    """The part of PyTorch's class that a tracer uses, for the line of a module's code."""

    def __init__(self, frames: list[traceback.FrameSummary]) -> None:
        self._frames = frames

    @classmethod
    def extract(cls, **_: Any) -> "_Line":
        """Find the innermost forward and line within it that are neither PyTorch's nor ours."""
        frame: FrameType | None = sys._getframe(1)
        inner = forward = own = line = None
        while frame is not None:
            outside = not frame.f_code.co_filename.startswith(ELSEWHERE)
            own = own or (frame if outside else None)
            if frame.f_code.co_name == "forward":
                # What calls the outermost forward is no part of the module.
                inner, line = inner or frame, own
                forward = forward or (frame if outside else None)
            frame = frame.f_back
        # A Sequential has no forward of its own. Some tracers keep only lines of forwards.
        found = dict.fromkeys((forward or inner, line))
        return cls([_summary(each) for each in found if each is not None])

    def summary(self) -> traceback.StackSummary:
        """Return the lines, outermost first."""
        return traceback.StackSummary.from_list(self._frames)

    def format(self) -> list[str]:
        """Return the text; tracers up to PyTorch 2.6 call this."""
        return self.summary().format()

    def __getattr__(self, name: str) -> Any:
        """Return what other releases may take from the whole stack."""
        return getattr(WHOLE.extract(), name)


def _summary(frame: FrameType) -> traceback.FrameSummary:
    name, number = frame.f_code.co_filename, frame.f_lineno
    text = linecache.getline(name, number)
    return traceback.FrameSummary(name, number, frame.f_code.co_name, lookup_line=False, line=text)


@contextmanager
def short_stacks() -> Iterator[None]:
    """Record one line per operator in traces, if PyTorch has the class that this replaces."""
    if WHOLE is None:
        yield
        return
    with replaced(proxy, NAME, _Line):
        yield
