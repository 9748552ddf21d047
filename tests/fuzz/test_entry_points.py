"""A bounded run of the entry-point fuzzer, and the conversion of exceptions at the boundary."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from safetensors import SafetensorError

import pockengine
from pockengine.arguments import check_arguments
from pockengine.boundary import entry_point, stray
from pockengine.errors import ArgumentError, InternalError, RuntimeFailure, reason_of
from pockengine.tests.fuzz.entry_points import campaign


def test_hostile_arguments_raise_our_errors() -> None:
    tally = campaign(calls=250, seed=1)

    assert not tally.faults
    assert tally.outcomes["refused"] > 150
    assert tally.outcomes["done"] > 10


def test_internal_errors_ask_for_a_report(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    none: dict[str, Path] = {}
    monkeypatch.setattr("pockengine.loaded.Path", lambda _: none["missing"])
    monkeypatch.setattr("pockengine.loaded.load_artifact", lambda _: [].pop())
    with pytest.raises(KeyError):  # a function of this file, which stands for the user's code
        pockengine.load(tmp_path)
    monkeypatch.setattr("pockengine.loaded.Path", None)
    with pytest.raises(InternalError, match=r"load failed: TypeError.*at loaded.py:\d+.* report"):
        pockengine.load(tmp_path)


def test_internal_errors_name_framework_versions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__version__="9.8.7"))
    monkeypatch.setattr("pockengine.loaded.load_artifact", SimpleNamespace)

    with pytest.raises(
        InternalError, match=r"\(at loaded.py:\d+, with .*torch 9\.8\.7.*versions.md"
    ):
        pockengine.load(tmp_path)


def refused(path: Path) -> None:
    path.read_text()


def test_reasons_have_no_number_and_no_repr_of_the_path(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for path, reason in (
        (file / "a" / "b", f"{file} is a file, not a folder"),
        (tmp_path / "none" / "a", "No such file or directory"),
        (tmp_path, "Is a directory"),
    ):
        with pytest.raises(OSError, match="Errno") as caught:
            path.write_text("")
        assert reason_of(caught.value) == reason
    assert reason_of(KeyError("recipe")) == "it lacks 'recipe'"
    assert reason_of(ValueError("no number")) == "no number"
    full = SafetensorError("Error while serializing: I/O error: No space left (os error 28)")
    assert reason_of(full) == "No space left"


def full() -> None:
    raise SafetensorError("Error while serializing: I/O error: No space left (os error 28)")


def greedy() -> None:
    raise RuntimeError("alloc_cpu.cpp:127 DefaultCPUAllocator: can't allocate memory: you tried")


def test_operating_system_errors_are_not_internal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pockengine.boundary.NOT_OURS", ())
    with pytest.raises(
        RuntimeFailure,
        match="refused: /proc/nosuch: No such file or directory; the operating system refused it",
    ):
        entry_point(refused)(Path("/proc/nosuch"))
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        entry_point(refused)()  # type: ignore[call-arg]
    with pytest.raises(RuntimeFailure, match=r"allocate memory.*; the operating system refused it"):
        entry_point(greedy)()
    with pytest.raises(RuntimeFailure, match=r"No space left.*the operating system refused it"):
        entry_point(full)()
    assert stray(UserWarning("made an error of"), "f") is None
    with pytest.raises(click.UsageError):
        entry_point(misused)()


def misused() -> None:
    raise click.UsageError("give --data")


def typed(
    count: int,
    rate: float | None = None,
    places: "Path | str | NotImported" = "",  # type: ignore[name-defined]  # noqa: F821
    betas: tuple[float, ...] = (),
    names: Mapping[str, int] = {},
    judge: Callable[..., Any] | None = None,
) -> None:
    """Take arguments of these types."""


@pytest.mark.parametrize(
    "wrong",
    [
        {"count": 1.0},
        {"count": "1"},
        {"count": 1, "rate": "0.1"},
        {"count": 1, "betas": (0.1, "x")},
        {"count": 1, "names": [1]},
        {"count": 1, "judge": 3},
        {"count": 1, "places": "a\0b"},
    ],
    ids=str,
)
def test_errors_name_arguments_of_wrong_types(wrong: dict[str, Any]) -> None:
    right = {"count": 1, "rate": 1, "betas": [0.9, 1], "judge": print, "names": {}}
    check_arguments(typed, (), right)
    check_arguments(typed, (1, 0.5, Path("x")), {})
    name = list(wrong)[-1]
    with pytest.raises(ArgumentError, match=f"typed: {name} "):
        check_arguments(typed, (), wrong)
