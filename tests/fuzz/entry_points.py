"""Hostile arguments for every public function, class, method and command.

    bazel run //tests/fuzz:entry_points -- --calls 100000 --seed 1

A call may succeed or raise a PockEngineError. An InternalError, or any other exception that does
not come from the user's own code, is a bug.
"""

import inspect
import os
import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn
from unittest.mock import patch

import click
import numpy as np
from click.testing import CliRunner

import pockengine
from pockengine import compilation
from pockengine.backends.artifact import Artifact
from pockengine.backends.session import Session
from pockengine.boundary import theirs
from pockengine.cli.commands import ROWS
from pockengine.cli.main import cli
from pockengine.errors import InternalError, PockEngineError
from pockengine.tests.backends.training.nets import data, graph

ROWS_OF_DATA = data(8)


class Odd:
    """An object of an unknown class."""

    def __repr__(self) -> str:
        return "Odd()"


BAD: Sequence[Any] = (
    *(None, True, -1, 0, 1, 3, 2**40, 1.5, float("nan"), float("inf"), -0.5, 1 + 2j),
    *(
        "",
        "x",
        "adam",
        "full",
        "cosine",
        "/proc/nosuch",
        "a\0b",
        "é\n",
        b"x",
        Path("/proc/nosuch"),
        Path("."),
    ),
    *((), [], {}, [1], ("a",), (1, 2), {"x": 1}, {"x": None}, {1: 2}, range(3), Odd(), Odd),
    *(np.zeros(0), np.zeros((2, 2), np.float32), np.array("s"), np.array([Odd()], object)),
    *(np.float32(1), np.int64(3), lambda: None, lambda *_: None),
)
WORDS = (
    *("", "-1", "0", "1", "3", "1.5", "nan", "x", "--", "/proc/nosuch", ".", "é\n", "x=1x2"),
    *("adam", "sgd:momentum=x", "cosine", "lora-2", "sparse", "host", "rpi4", "json:loads"),
    *("nosuch:f", "os:getcwd", "net.onnx", "{junk}", "{artifact}", "{rows}", "{folder}"),
)
"""Arguments and option values of commands; names in braces are files."""
MODELS = (*WORDS, "random:random", "{junk}.onnx", "{junk}.tflite", "{junk}.keras", "{junk}.h5")
LONG_RUN = {"doctor", "bench", "run", "ping", "add", "ab", "plan-lm"}
"""Commands that reach machines or import every framework, whatever their arguments."""


class Planned(PockEngineError):
    """Raised instead of writing and building a compiled program."""


@dataclass
class Tally:
    """Counts of calls by outcome, and the bugs by their location."""

    outcomes: Counter[str] = field(default_factory=Counter)
    faults: dict[str, str] = field(default_factory=dict)

    def call(self, label: str, function: Callable[[], Any]) -> None:
        """Make a call and count its outcome."""
        try:
            function()
        except InternalError as error:
            self._fault(label, str(error))
        except PockEngineError:
            self.outcomes["refused"] += 1
        except Exception as error:
            if _users(error):
                self.outcomes["user's"] += 1
            else:
                self._fault(label, f"{type(error).__name__}: {error}")
        else:
            self.outcomes["done"] += 1

    def _fault(self, label: str, words: str) -> None:
        self.outcomes["fault"] += 1
        self.faults.setdefault(words, label)


@dataclass(frozen=True)
class Fuzzer:
    """Draw calls on an artifact of a small net, within its own folder."""

    rng: random.Random
    folder: Path
    artifact: Artifact

    def calls(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        """Yield one call of each kind."""
        loaded = pockengine.load(self.artifact.folder)
        for name in ("fit", "evaluate", "predict", "weights", "save_weights"):
            yield self._draw_call(name, getattr(loaded, name))
        yield self._near("fit", loaded.fit, {"data": ROWS_OF_DATA, "epochs": 1, "lr": 0.1})
        good = {"model": graph(), "example_inputs": ()}
        yield self._near("compile", pockengine.compile, good)
        with loaded.session() as session:
            for name, method in inspect.getmembers(session, inspect.ismethod):
                if not name.startswith("_") and name in vars(Session):
                    yield self._draw_call(name, method)
        name = self.rng.choice(sorted(pockengine._PLACES))
        yield self._draw_call(name, getattr(pockengine, name))
        yield from self._constructed()
        yield self._command()

    def _constructed(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        """Yield a call with an object whose constructor accepted its arguments."""
        for name, use in USES.items():
            try:
                instance = self._draw_call(name, getattr(pockengine, name), few=True)[1]()
            except PockEngineError:
                continue
            except Exception as error:
                yield name, partial(_raise, error)
                continue
            yield f"{use} of {name}", partial(self._use, use, instance)

    def _use(self, use: str, instance: Any) -> None:
        if use in ("optimizer", "clip", "storage", "sizes", "quantize"):
            pockengine.compile(graph(), (), **{use: instance})
        loaded, more = pockengine.load(self.artifact.folder), {use: instance}
        course = {"epochs": 1, "lr": 0.1, "validation": ROWS_OF_DATA, **more}
        loaded.fit(course.pop("data", ROWS_OF_DATA), **course)

    def _draw_call(
        self, label: str, function: Callable[..., Any], few: bool = False
    ) -> tuple[str, Callable[[], Any]]:
        """Draw all required arguments, and some of the others."""
        inputs = {
            name: self.rng.choice(BAD)
            for name, parameter in inspect.signature(function).parameters.items()
            if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
            and (parameter.default is parameter.empty or self.rng.random() < (0.2 if few else 0.3))
        }
        return f"{label}({inputs})", partial(function, **inputs)

    def _near(
        self, label: str, function: Callable[..., Any], good: dict[str, Any]
    ) -> tuple[str, Callable[[], Any]]:
        """Yield valid arguments, except one or two."""
        names = list(inspect.signature(function).parameters)
        wrong = {name: self.rng.choice(BAD) for name in self.rng.sample(names, 2)}
        if label == "fit" and self.rng.random() < 0.5:
            wrong["data"] = {"x": self.rng.choice(BAD), "labels": ROWS_OF_DATA["labels"]}
        return f"{label}({wrong})", partial(function, **{**good, **wrong, "progress": None})

    def _command(self) -> tuple[str, Callable[[], Any]]:
        name = self.rng.choice([name for name in ROWS if name not in LONG_RUN])
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        words = [name]
        for parameter in command.params:
            pool = MODELS if parameter.name == "model" else WORDS
            if isinstance(parameter, click.Argument):
                words.append(self._word(pool))
            elif parameter.required or self.rng.random() < 0.15:
                assert isinstance(parameter, click.Option)
                words.append(parameter.opts[0])
                words += [] if parameter.is_flag else [self._word(pool)]
        return f"pockengine {words}", partial(self._run, words)

    def _word(self, pool: Sequence[str]) -> str:
        places = {"junk": "junk", "artifact": "net", "rows": "rows.npz", "folder": "empty"}
        return self.rng.choice(pool).format(**{k: self.folder / v for k, v in places.items()})

    def _run(self, words: Sequence[str]) -> None:
        result = CliRunner().invoke(cli, words)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception


USES = {
    **dict.fromkeys(pockengine._OPTIMIZERS, "optimizer"),
    "Augmentation": "augment",
    "Checkpoints": "checkpoint",
    "Clip": "clip",
    "CsvLog": "callbacks",
    "DutyCycle": "callbacks",
    "EarlyStopping": "early_stopping",
    "Int8": "quantize",
    "Metric": "metrics",
    "Pictures": "data",
    "Range": "sizes",
    "RateSchedule": "lr",
    "Storage": "storage",
}
"""Parameters that take objects of the public classes."""


def _users(error: Exception) -> bool:
    """Return whether a user's function raised the error, or does not accept its arguments."""
    trace, codes = error.__traceback__, []
    while trace is not None:
        codes.append(trace.tb_frame.f_code)
        trace = trace.tb_next
    return theirs.__code__ in codes[-2:]


def _raise(error: Exception) -> NoReturn:
    raise error


def _plan_only(*args: object, **kwargs: object) -> NoReturn:
    raise Planned("nothing is built")


def campaign(calls: int, seed: int) -> Tally:
    """Make at least this many calls; build only one small net."""
    tally = Tally()
    with TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = Path(name)
        artifact = pockengine.compile(graph(), (), folder=folder / "net").artifact
        for ending in ("", ".onnx", ".tflite", ".keras", ".h5"):
            (folder / f"junk{ending}").write_bytes(bytes(range(256)))
        np.savez(folder / "rows.npz", **ROWS_OF_DATA)
        (folder / "empty").mkdir()
        fuzzer, here = Fuzzer(random.Random(seed), folder, artifact), Path.cwd()
        os.chdir(folder / "empty")
        try:
            with patch.object(compilation, "write_artifact", _plan_only):
                while tally.outcomes.total() < calls:
                    for label, function in fuzzer.calls():
                        tally.call(label, function)
        finally:
            os.chdir(here)
    return tally


@click.command()
@click.option("--calls", default=2000, show_default=True)
@click.option("--seed", default=0, show_default=True)
def main(calls: int, seed: int) -> None:
    """Make calls and print their outcomes."""
    tally = campaign(calls, seed)
    for words, label in tally.faults.items():
        print(f"{words}\n    by {label[:300]}")
    print(dict(tally.outcomes))
    raise SystemExit(1 if tally.faults else 0)


if __name__ == "__main__":
    main()
