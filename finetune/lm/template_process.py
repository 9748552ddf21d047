"""Render a tokenizer's chat template in a separate process with limits.

jinja2's sandbox isolates a template from Python, but does not bound loops and output: exceeding a
limit ends this process, not its parent. It is a fork, so it shares the tokenizer, and lives until
the renderer is garbage-collected.
"""

import os
import resource
import signal
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from weakref import finalize

from pockengine.errors import FinetuneError

SECONDS = 10
"""Processor time limit per chat; models' templates take milliseconds."""
MEMORY = 1 << 30
"""Memory limit in bytes, in addition to the parent's."""
LETTERS = 1 << 24
"""Maximum characters of a chat; decoders learn from texts of thousands."""


class TemplateProcess:
    """Renders chats with a tokenizer's template; FinetuneError if it exceeds a limit."""

    def __init__(self, tokenizer: Any) -> None:
        self._connection, theirs = Pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on fork with threads, which the child does not use
            child = os.fork()
        if child == 0:
            try:
                self._connection.close()
                _serve(tokenizer, theirs)
            finally:
                os._exit(0)
        theirs.close()
        finalize(self, _end, self._connection, child, os.getpid())

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        answer_follows: bool,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> str:
        """Return the text of a chat; ValueError if the template refuses it."""
        try:
            self._connection.send((list(messages), answer_follows, list(tools)))
            text, fault = self._connection.recv()
        except (EOFError, OSError):
            raise FinetuneError(
                f"the tokenizer's chat template takes more than {SECONDS} s or {MEMORY >> 20} MiB "
                "for one chat; mend the template, or leave it out"
            ) from None
        if fault is not None:
            raise ValueError(fault)
        return str(text)


def _serve(tokenizer: Any, connection: Connection) -> None:
    with suppress(OSError):  # a system without /proc
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while True:
        try:
            chat = connection.recv()
        except (EOFError, OSError, KeyboardInterrupt):
            return
        spent = resource.getrusage(resource.RUSAGE_SELF)
        until = int(spent.ru_utime + spent.ru_stime) + 1 + SECONDS
        resource.setrlimit(resource.RLIMIT_CPU, (until, until + 1))
        connection.send(_rendered(tokenizer, *chat))


def _rendered(
    tokenizer: Any, messages: Any, answer_follows: bool, tools: Any
) -> tuple[str, str | None]:
    try:
        text = tokenizer.apply_chat_template(
            messages, tools=tools or None, tokenize=False, add_generation_prompt=answer_follows
        )
    except MemoryError:
        return "", f"it takes more than {MEMORY >> 20} MiB"
    except Exception as error:  # a template may raise anything
        return "", f"{error}"[:LETTERS]
    if len(text) > LETTERS:
        return "", f"it writes {len(text)} letters"
    return text, None


def _end(connection: Connection, child: int, parent: int) -> None:
    connection.close()
    if os.getpid() == parent:  # a fork of the parent leaves it alone
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
