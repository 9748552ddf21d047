"""Instructions counted on an emulated board: ours, the frameworks' own steps, and ours in other
runtimes.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from pockengine import __version__
from pockengine.devices import load_device
from pockengine.errors import FarmError, PockEngineError
from pockengine.farm.bench.case import Case
from pockengine.farm.bench.peers import (
    COUNTED_STEPS,
    OURS,
    InRuntime,
    Measured,
    count_peers,
    count_regions,
    counted_regions,
    counted_steps,
    few_steps,
    measured_guest,
    what_is_missing,
)
from pockengine.farm.bench.predictions import count_prediction
from pockengine.farm.bench.result import F32, BenchOptions, BenchResult, CheckedScheme
from pockengine.farm.bench.schemes import name_of
from pockengine.farm.bench.table import TENSORFLOW
from pockengine.farm.boards.board import Board, UserEmulated
from pockengine.farm.cycles.core import THUMB, modelled_devices
from pockengine.farm.cycles.firmware import model_firmware
from pockengine.farm.cycles.modelled import Modelled, model_regions, what_it_means
from pockengine.farm.firmware.link import Firmware
from pockengine.farm.firmware.run import write_first_steps
from pockengine.farm.progress import step
from pockengine.farm.references.instructions import check_repeated, why_not_counted
from pockengine.farm.references.tflite_inference import measure_inference
from pockengine.farm.references.timing import Timing
from pockengine.farm.results.setup import EngineRun


def count_steps(
    options: BenchOptions, result: BenchResult, right: list[CheckedScheme], folder: Path
) -> None:
    """Count our instructions and those of aarch64 TensorFlow; on a DSP only our packets.

    An emulator without plugins, as Debian has since 13, is noted: the training was checked. It is a
    failure if counts of a reference or runtime were requested.
    """
    uncounted = [one for one in right if not one.run.instructions]
    reason = why_not_counted(load_device(options.board.device).cpu.arch) if uncounted else None
    if reason is not None and not (options.references or options.runtimes):
        result.note(f"No instructions were counted: {reason}")
        return
    for one in right:
        with result.failing(one.title):
            ours = counted_steps(one.run.instructions)
            if one.run.firmware is not None:
                _model_firmware(result, one, one.run.firmware)
            ours = ours or _count_ours(result, one, folder / one.name)
            result.add_measured((one.name, one.dtype), ours)
            if one.predicted is not None:
                _count_prediction(result, one, folder / one.name)
            if one.dtype == F32 and not one.run.instructions:
                _count_peers(options, result, one, ours.metric)
    _count_inference(options, result, right)
    if isinstance(options.board.place, UserEmulated):
        return
    beside = {record.scheme for record in result.records if record.engine in TENSORFLOW}
    floats = [one.name for one in right if one.dtype == F32]
    result.note(what_is_missing([name for name in floats if name not in beside], []))


def counts(board: Board) -> bool:
    """Whether instructions are counted on a board: emulated, by QEMU and not by Node."""
    return board.emulated and not load_device(board.device).wasm


def describe_wall_time(one: CheckedScheme) -> str:
    """Describe the time of a step in Node, whose engine compiles to this machine's code."""
    times = Timing.of(one.run.step_ms[1:] or one.run.step_ms)
    return (
        f"{one.title}: {times.median:.2f} ms of wall time per step in Node on this machine, of "
        f"{times.n} steps; not recorded: Node counts no instructions, and browsers differ."
    )


def _count_ours(result: BenchResult, one: CheckedScheme, folder: Path) -> Measured:
    """Count a step's instructions in two runs; FarmError if they differ.

    The second run also models the time, if the board has a model.
    """
    command = few_steps(one.artifact, one.data, folder)
    with step(f"{one.title}: count instructions of a step"):
        first = count_regions(one.artifact, command)
    second = _model_steps(result, one, command)
    if second is None:
        with step(f"{one.title}: count them again"):
            second = count_regions(one.artifact, command)
    check_repeated(command[0], first, second)
    return counted_regions(one.artifact, first)


def _model_steps(
    result: BenchResult, one: CheckedScheme, command: Sequence[str]
) -> tuple[int, ...] | None:
    """Add the modelled milliseconds of a step with warm caches; return all steps' instructions.

    None without a model of the board, or if it fails.
    """
    device = one.artifact.device
    if device not in modelled_devices():
        return None
    with step(f"{one.title}: count them again, and model the time"):
        try:
            steps = model_regions(device, command)
        except FarmError as error:
            result.note(f"No modelled time of {one.title}: {error}")
            return None
    _add_modelled(result, one, steps[-1])
    return tuple(each.instructions for each in steps)


def _model_firmware(result: BenchResult, one: CheckedScheme, firmware: Firmware) -> None:
    """Add the modelled milliseconds of a firmware's second step, if there is a model."""
    device = one.artifact.device
    if device not in modelled_devices(THUMB):
        return
    with TemporaryDirectory() as name, step(f"{one.title}: model the time"):
        write_first_steps(firmware, COUNTED_STEPS, Path(name, "data"))
        try:
            steps = model_firmware(device, firmware.path, Path(name))
        except FarmError as error:
            result.note(f"No modelled time of {one.title}: {error}")
            return
    _add_modelled(result, one, steps[-1])


def _add_modelled(result: BenchResult, one: CheckedScheme, modelled: Modelled) -> None:
    setup = replace(result.setup, dtype=one.dtype)
    run = EngineRun(OURS, __version__, one.name)
    note = what_it_means(modelled.device)
    result.add(setup.record(run, "modelled_ms", modelled.milliseconds, note=note))


def _count_prediction(result: BenchResult, one: CheckedScheme, folder: Path) -> None:
    assert one.predicted is not None
    with step(f"{one.title}: count instructions of a prediction, twice"):
        found = count_prediction(one.artifact, one.data, one.predicted, folder)
    result.add_measured((f"{one.name}, prediction", one.dtype), found)


def _count_inference(
    options: BenchOptions, result: BenchResult, right: list[CheckedScheme]
) -> None:
    """Add TFLite's inference to predictions, with the initial weights of all schemes."""
    beside = [one for one in right if one.predicted is not None and one.dtype == F32]
    if not beside:
        return
    assert beside[0].predicted is not None
    (expected,) = beside[0].predicted.values()
    try:
        figures = measure_inference(options.board.device, beside[0].data, expected)
    except FarmError as error:
        result.note(f"No TFLite beside predictions: {error}")
        return
    for one in beside:
        for dtype, figure in figures.items():
            result.add_measured((f"{one.name}, prediction", dtype), measured_guest(figure))


def _count_peers(
    options: BenchOptions, result: BenchResult, one: CheckedScheme, metric: str
) -> None:
    """Add the frameworks' own steps, which are in f32."""
    if metric != "guest_instructions":
        return
    schemes = options.reference_schemes
    measured = options.references if schemes is None or one.name in schemes else ()
    peers, missing = count_peers(one.data, one.losses, measured)
    for peer in peers:
        result.add_measured((one.name, one.dtype), peer)
    for framework, reason in missing.items():
        result.note(f"No {framework} beside {one.name}: {reason}")


def count_runtimes(
    options: BenchOptions, case: Case, result: BenchResult, right: list[CheckedScheme], folder: Path
) -> None:
    """Count our step in every requested runtime; note why others cannot run it."""
    schemes = {name_of(scheme): case.scheme(scheme) for scheme in options.schemes}
    for one in right:
        for backend in options.runtimes:
            scheme, device = schemes[one.name], options.board.device
            python = options.pythons.get(backend)
            there = InRuntime(
                backend, device, scheme, graph=case.graph, data=one.data, python=python
            )
            try:
                figure = there.count(one.losses, folder / one.name / backend)
            except PockEngineError as error:
                result.note(f"No {backend} beside {one.name}: {error}")
            else:
                result.add_measured((one.name, F32), figure)
