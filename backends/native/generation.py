"""Views of pe_generate.h's structures, and a call of pe_generate."""

import ctypes
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from pockengine.backends.generation import Generation, Notify

NOTIFY = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_int64)


class GenerationView(ctypes.Structure):
    """pe_generation, with its pe_sampling."""

    _fields_: ClassVar = [
        ("temperature", ctypes.c_float),
        ("top_p", ctypes.c_float),
        ("seed", ctypes.c_uint32),
        ("limit", ctypes.c_int64),
        ("ends", ctypes.c_void_p),
        ("end_count", ctypes.c_int),
        ("notify", NOTIFY),
        ("context", ctypes.c_void_p),
    ]


def generated(
    call: Callable[..., None],
    prompt: np.ndarray,
    cached: int,
    how: Generation,
    notify: Notify | None,
) -> list[int]:
    """Generate by `call`, which calls pe_generate on a session; re-raise what notify raises."""
    ends = np.asarray(how.ends, np.int64)
    tokens, made = np.empty(max(how.limit, 1), np.int64), ctypes.c_int64()
    raised: list[BaseException] = []

    def tell(_: Any, token: int) -> bool:
        try:
            return notify is None or notify(token) is not False
        except BaseException as error:  # it must not cross C
            raised.append(error)
            return False

    callback = NOTIFY(tell) if notify is not None else NOTIFY()
    numbers = (how.temperature, how.top_p, how.seed & 0xFFFFFFFF, how.limit)
    view = GenerationView(*numbers, ends=ends.ctypes.data, end_count=len(ends), notify=callback)
    pointers = (tokens.ctypes.data, ctypes.byref(made))
    call(prompt.ctypes.data, len(prompt), cached, ctypes.byref(view), *pointers)
    if raised:
        raise raised[0]
    return [int(token) for token in tokens[: made.value]]
