"""A training stopped at any step and resumed equals an uninterrupted one."""

import os
import signal
import subprocess
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import pockengine
from pockengine.backends.training.callbacks import Callback
from pockengine.backends.training.loop import Step
from pockengine.compiler.optim import Optimizer
from pockengine.errors import RuntimeFailure, TrainingDiverged
from pockengine.tests.backends.c.resuming import same
from pockengine.tests.backends.every import EVERY_BACKEND
from pockengine.tests.backends.training.nets import accuracy, compiled, data, figures

TRAIN, JUDGED = data(22), data(10, seed=1)
STEPS = 20  # of four epochs of five


class StopAfter(Callback):
    """Ends a training after a step, as a user might."""

    def __init__(self, step: int) -> None:
        self._step = step

    def on_step(self, step: Step) -> bool:
        return step.number >= self._step


@EVERY_BACKEND
@pytest.mark.parametrize(
    ("optimizer", "micro_batches", "stop"),
    [
        (pockengine.Adam(), 1, 7),
        (pockengine.Sgd(momentum=0.9), 3, 10),
        (pockengine.AdamW(weight_decay=0.1), 2, 13),
    ],
)
def test_resumed_is_uninterrupted(
    device: Path | str, optimizer: Optimizer, micro_batches: int, stop: int, tmp_path: Path
) -> None:
    options = {
        "epochs": 4,
        "lr": 0.02,
        "schedule": "cosine",
        "warmup": 2,
        "seed": 5,
        "validation": JUDGED,
        "metrics": {"accuracy": accuracy},
    }
    whole = compiled(device, optimizer, micro_batches)
    expected = whole.fit(TRAIN, **options)
    place = pockengine.Checkpoints(tmp_path / "kept", every=3)
    stopped = compiled(device, optimizer, micro_batches)
    history = stopped.fit(TRAIN, **options, checkpoint=place, callbacks=[StopAfter(stop)])

    assert history.stopped == f"StopAfter ended it after step {stop}"
    assert stopped.trained.steps == stop < STEPS == whole.trained.steps

    resumed = compiled(device, optimizer, micro_batches)
    found = resumed.fit(TRAIN, **options, checkpoint=place, resume=True)

    same(resumed.trained.params(), whole.trained.params())
    assert found.steps == expected.steps
    assert figures(found) == figures(expected)
    names = {path.name for path in (tmp_path / "kept").iterdir()}
    assert names == {f"step-{n:010d}.safetensors" for n in (18, 20)} | {"history.jsonl"}


def test_a_torn_log_and_a_damaged_checkpoint_are_passed_over(tmp_path: Path) -> None:
    options = {"epochs": 2, "lr": 0.02, "checkpoint": pockengine.Checkpoints(tmp_path, every=2)}
    whole, resumed = compiled(), compiled()
    expected = whole.fit(TRAIN, **options)
    newest = tmp_path / "step-0000000010.safetensors"
    newest.write_bytes(newest.read_bytes()[:-4])
    log = tmp_path / "history.jsonl"
    log.write_text(log.read_text(encoding="utf-8")[:-9], encoding="utf-8")

    with pytest.warns(UserWarning, match="an older checkpoint is tried"):
        found = resumed.fit(TRAIN, **options, resume=True)

    same(resumed.trained.params(), whole.trained.params())
    assert figures(found) == figures(expected)


def test_without_a_checkpoint_a_training_goes_on_where_it_stood() -> None:
    whole, parts = compiled(), compiled()
    whole.fit(TRAIN, epochs=3, lr=0.02, seed=2)
    parts.fit(TRAIN, steps=7, lr=0.02, seed=2)
    parts.fit(TRAIN, epochs=3, resume=True)

    same(parts.trained.params(), whole.trained.params())


@pytest.mark.parametrize("again", [{}, {"schedule": "cosine"}, {"total": 20}], ids=str)
def test_a_training_that_goes_on_for_longer_follows_its_new_end(
    again: dict[str, Any], tmp_path: Path
) -> None:
    """Rates of epochs 3 and 4 are those of a schedule over four epochs."""
    whole, longer = compiled(micro_batches=2), compiled(micro_batches=2)
    course = {"lr": 0.02, "schedule": "cosine"}
    expected = whole.fit(TRAIN, epochs=4, **course)
    longer.fit(TRAIN, epochs=2, **course, checkpoint=tmp_path)

    found = longer.fit(TRAIN, epochs=4, **again, checkpoint=tmp_path, resume=True)

    rates = [step.rate for step in found.steps]
    if again.get("total"):
        assert rates[10:] == [
            pockengine.RateSchedule("cosine", 0.02, 20)(6 + n // 2) for n in range(10)
        ]
    else:
        assert rates[10:] == [step.rate for step in expected.steps][10:]
    assert rates[:10] != [step.rate for step in expected.steps][:10]


def test_a_total_holds_beyond_the_end_of_a_training() -> None:
    parts = compiled()
    first = parts.fit(TRAIN, steps=7, lr=0.02, schedule="linear", total=STEPS)
    then = parts.fit(TRAIN, steps=12, resume=True)

    rates = [step.rate for step in (*first.steps, *then.steps)]
    expected = pockengine.RateSchedule("linear", 0.02, STEPS)
    assert rates == [expected(number) for number in range(1, 13)]
    with pytest.raises(RuntimeFailure, match="leave schedule, warmup and total out"):
        parts.fit(TRAIN, steps=7, lr=expected, total=9)


def test_each_fit_begins_a_training_of_its_own() -> None:
    net, other = compiled(), compiled()
    net.fit(TRAIN, steps=6, lr=0.02)
    begun = net.trained.params()
    net.fit(TRAIN, steps=4, lr=0.02, seed=1)
    with other.session() as session:
        for name, array in begun.items():
            if other.artifact.params[name].kind == "param":
                session.set_param(name, array)
        other.trained.take(session)
    other.fit(TRAIN, steps=4, lr=0.02, seed=1)

    assert net.trained.steps == 4
    same(net.trained.params(), other.trained.params())


def test_more_threads_go_on_with_the_same_training() -> None:
    one, moved = compiled(), compiled()
    one.fit(TRAIN, epochs=2, lr=0.02)
    moved.fit(TRAIN, steps=4, lr=0.02)
    moved.fit(TRAIN, epochs=2, resume=True, threads=2)

    assert moved.trained.threads == 2
    for name, array in one.trained.params().items():
        np.testing.assert_allclose(moved.trained.get_param(name), array, rtol=1e-4, atol=1e-6)


class Interrupt(Callback):
    """Sends this process a signal during a step."""

    def on_step(self, step: Step) -> None:
        if step.number == 7:
            os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupted_training_is_saved_first(tmp_path: Path) -> None:
    whole, net = compiled(), compiled()
    whole.fit(TRAIN, epochs=2, lr=0.02)
    with pytest.raises(KeyboardInterrupt):
        net.fit(TRAIN, epochs=2, lr=0.02, checkpoint=tmp_path, callbacks=[Interrupt()])
    saved = pockengine.Checkpoints(tmp_path).steps()
    resumed = compiled()
    resumed.fit(TRAIN, epochs=2, checkpoint=tmp_path, lr=0.02, resume=True)

    assert saved == [7, 5]
    same(resumed.trained.params(), whole.trained.params())


class Kill(Callback):
    """Ends this process during a training, without cleanup."""

    def on_step(self, step: Step) -> None:
        if step.number == 7:
            os.kill(os.getpid(), signal.SIGKILL)


def killed_training(folder: Path, place: pockengine.Checkpoints) -> None:
    pockengine.load(folder).fit(TRAIN, epochs=2, lr=0.02, checkpoint=place, callbacks=[Kill()])


def test_a_killed_training_goes_on(tmp_path: Path) -> None:
    whole = compiled()
    place = pockengine.Checkpoints(tmp_path / "kept", every=2)
    process = get_context("fork").Process(
        target=killed_training, args=(whole.artifact.folder, place)
    )
    process.start()
    process.join()
    assert (process.exitcode, place.steps()) == (-signal.SIGKILL, [6, 4])
    expected = whole.fit(TRAIN, epochs=2, lr=0.02)
    resumed = pockengine.load(whole.artifact.folder)
    found = resumed.fit(TRAIN, epochs=2, lr=0.02, checkpoint=place, resume=True)

    same(resumed.trained.params(), whole.trained.params())
    assert (found.steps, figures(found)) == (expected.steps, figures(expected))


def poisoned() -> dict[str, np.ndarray]:
    rows = data(20)
    rows["x"][9] = np.inf
    return rows


def test_a_loss_that_is_not_finite_stops_and_keeps_the_last_checkpoint(tmp_path: Path) -> None:
    net = compiled(optimizer=pockengine.Sgd())
    place = pockengine.Checkpoints(tmp_path, every=1)
    with pytest.raises(TrainingDiverged, match="loss of step 3 is not finite"):
        net.fit(poisoned(), epochs=1, lr=0.1, shuffle=False, checkpoint=place)
    resumed = compiled(optimizer=pockengine.Sgd())

    assert place.steps() == [2, 1]
    assert place.load(resumed.trained)
    assert all(np.isfinite(array).all() for array in resumed.trained.params().values())


def test_rolling_back_leaves_the_bad_batch_out(tmp_path: Path) -> None:
    net, clean = compiled(optimizer=pockengine.Sgd()), compiled(optimizer=pockengine.Sgd())
    place = pockengine.Checkpoints(tmp_path, every=1, on_nan="rollback")
    history = net.fit(poisoned(), epochs=1, lr=0.1, shuffle=False, checkpoint=place)
    with clean.session() as session:
        for step in (1, 2, 4, 5):
            session.steps = step - 1
            rows = slice(4 * (step - 1), 4 * step)
            session.train_step({name: a[rows] for name, a in poisoned().items()}, 0.1)
        same(net.trained.params(), session.params())
    assert [step.number for step in history.steps] == [1, 2, 4, 5]


def test_training_that_only_diverges_ends(tmp_path: Path) -> None:
    rows = data(40)
    rows["x"][:] = np.inf
    place = pockengine.Checkpoints(tmp_path, on_nan="rollback")
    with pytest.raises(TrainingDiverged, match="step 4"):
        compiled().fit(rows, epochs=1, lr=0.1, checkpoint=place)


def test_what_cannot_be_resumed_is_named(tmp_path: Path) -> None:
    net = compiled()
    net.fit(TRAIN, epochs=1, lr=0.1, checkpoint=tmp_path)
    with pytest.raises(RuntimeFailure, match=r"of step 5; resume=True \(--resume\) continues"):
        net.fit(TRAIN, epochs=1, lr=0.1, checkpoint=tmp_path)
    with pytest.raises(
        RuntimeFailure, match=r"had 22 rows, shuffled, \d a step, and these data are 21 rows"
    ):
        net.fit(data(21), epochs=2, checkpoint=tmp_path, resume=True)
    with pytest.raises(RuntimeFailure, match="these data are 22 rows, in order"):
        net.fit(TRAIN, epochs=2, checkpoint=tmp_path, resume=True, shuffle=False)
    with pytest.raises(RuntimeFailure, match="cannot be written"):
        net.fit(TRAIN, epochs=1, lr=0.1, checkpoint=Path("/proc/none"))


@pytest.mark.parametrize(
    "rates",
    [
        {"lr": 0.02, "schedule": "cosine", "warmup": 2},
        {"lr": pockengine.RateSchedule("multistep", 0.02, STEPS, 2, 0.5, milestones=(3, 6, 9))},
        {"lr": pockengine.RateSchedule("restarts", 0.02, STEPS, factor=2, period=3)},
    ],
    ids=["cosine", "multistep", "restarts"],
)
def test_the_runner_goes_on_with_a_training_and_gives_it_back(
    tmp_path: Path, rates: dict[str, Any]
) -> None:
    whole, net = compiled(), compiled()
    options = {"epochs": 4, "seed": 5, **rates}
    whole.fit(TRAIN, **options)
    place = pockengine.Checkpoints(tmp_path / "kept", every=50)
    net.fit(TRAIN, **options, checkpoint=place, callbacks=[StopAfter(7)])
    save_file(TRAIN, tmp_path / "data")
    command = [net.artifact.executable, "train", "--weights", net.artifact.weights]
    command += ["--data", tmp_path / "data", "--steps", "13", "--save", tmp_path / "kept"]
    done = subprocess.run([*command, "--resume"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert place.steps() == [13, 7]

    net.fit(TRAIN, epochs=4, checkpoint=place, resume=True)

    same(net.trained.params(), whole.trained.params())
