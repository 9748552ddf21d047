"""Trainings that are stopped, are killed, or diverge: the sanitized runner resumes them."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from pockengine.tests.backends.c.kill_trainings import kill_trainings
from pockengine.tests.backends.c.runner import RATE, Runner, as_rows, lines, point_runner
from pockengine.tests.backends.c.sealed import texts_of


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    return point_runner(tmp_path_factory.mktemp("long"))


def losses(records: list[dict[str, object]]) -> dict[object, object]:
    return {line["step"]: line["loss"] for line in records if "step" in line}


def names(folder: Path) -> list[int]:
    """The steps of a folder's checkpoints; the folder must have no other files."""
    found = sorted(path.name for path in folder.iterdir())
    return [int(name.removeprefix("step-").removesuffix(".safetensors")) for name in found]


COSINE = ("--schedule", "cosine", "--warmup", 2)


def test_checkpoints_are_saved_every_so_often_and_the_last_are_kept(
    runner: Runner, tmp_path: Path
) -> None:
    place = f"{tmp_path}/kept/"
    records = lines(runner.train(10, "--save", place, "--save-every", 3, "--keep", 3))
    assert [line["after"] for line in records if "saved" in line] == [3, 6, 9, 10]
    assert names(tmp_path / "kept") == [6, 9, 10]
    lines(runner.train(4, "--save", place))  # two by default, sorted by number
    assert names(tmp_path / "kept") == [9, 10]


def test_resuming_is_as_if_nothing_had_stopped(runner: Runner, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    expected = losses(lines(runner.train(9, "--save", whole, *COSINE)))
    for place in (tmp_path / "file", f"{tmp_path}/folder/"):
        first = lines(runner.train(4, "--save", place, *COSINE, "--total", 9))
        again = lines(runner.call(*_resumed(runner, place, 9)))  # the rate is in the checkpoint
        assert again[0] == {"resumed": True, "after": 4, "path": again[0]["path"]}
        assert {**losses(first), **losses(again)} == expected
        last = place if isinstance(place, Path) else max((tmp_path / "folder").iterdir())
        assert last.read_bytes() == whole.read_bytes()
        assert not losses(lines(runner.call(*_resumed(runner, place, 9))))  # no step remains


def _resumed(runner: Runner, place: object, steps: int) -> list[object]:
    files = ["--weights", runner.weights, "--data", runner.data]
    return ["train", *files, "--steps", steps, "--save", place, "--resume"]


def test_resuming_begins_where_there_is_nothing(runner: Runner, tmp_path: Path) -> None:
    place = tmp_path / "file"
    assert runner.call(*_resumed(runner, place, 2)).returncode == 2  # it has no rate
    assert len(losses(lines(runner.train(2, "--save", place, "--resume")))) == 2
    done = runner.train(2, f"--resume={tmp_path / 'absent'}")
    assert (done.returncode, done.stdout) == (1, "")
    assert "has no checkpoint" in done.stderr


def test_damaged_checkpoints_are_passed_over(runner: Runner, tmp_path: Path) -> None:
    place = tmp_path / "folder"
    options = ("--save", f"{place}/", "--keep", 3)
    lines(runner.train(6, *options, "--save-every", 2))
    paths = sorted(place.iterdir())
    for path in paths[1:]:
        path.write_bytes(path.read_bytes()[:-1])
    done = runner.train(7, *options, "--resume")
    records = lines(done)
    assert [line["path"] for line in records if "unsound" in line] == [str(p) for p in paths[:0:-1]]
    assert done.stderr.count("warning: ") == 2
    assert list(losses(records)) == [3, 4, 5, 6, 7]
    for path in place.iterdir():
        path.write_bytes(b"")
    done = runner.train(8, *options, "--resume")
    assert done.returncode == 1
    assert not losses([json.loads(line) for line in done.stdout.splitlines()])


def test_other_data_are_no_training_to_resume(runner: Runner, tmp_path: Path) -> None:
    saved, data = tmp_path / "saved", tmp_path / "data"
    lines(runner.train(2, "--save", saved))
    save_file({"x": np.zeros(1500, np.float32)}, data)
    done = runner.train(4, "--save", saved, "--resume", data=data)
    assert done.returncode == 1
    assert "had 900 rows" in done.stderr
    assert losses(lines(runner.train(1, "--checkpoint", saved, data=data))) != {}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_has_its_own_status(
    runner: Runner, tmp_path: Path, number: signal.Signals
) -> None:
    saved = tmp_path / "saved"
    steps = 1_000_000
    command = [str(runner.path), "train", "--weights", str(runner.weights), "--steps", str(steps)]
    command += ["--data", str(runner.data), "--lr", str(RATE), "--save", str(saved)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(number)
        records = [json.loads(line) for line in process.stdout.read().splitlines()]
    assert process.returncode == 5
    after = next(line["after"] for line in records if "saved" in line)
    assert 1 <= after < steps
    assert texts_of(saved)["pockengine.steps"] == str(after)
    again = lines(runner.train(after + 2, "--save", saved, "--resume"))
    assert list(losses(again)) == [after + 1, after + 2]


def test_a_lack_of_space_is_found_before_the_training(runner: Runner, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = ["unshare", "-rm", "sh", "-c"]
    script = f"mount -t tmpfs -o size=64k none {small}; head -c 64k /dev/zero > {small}/filler"
    script += f"; exec {runner.path} train"
    script += f" --weights {runner.weights} --data {runner.data} --steps 3 --lr 0.1"
    probe = subprocess.run([*mounted, f"mount -t tmpfs none {small}"], capture_output=True)
    if probe.returncode != 0:
        pytest.skip("no user namespaces here: nothing can be mounted")
    for place in (small / "saved", f"{small}/"):
        done = subprocess.run(
            [*mounted, f"{script} --save {place}"], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (1, ""), done.stderr
        assert "No space left on device" in done.stderr


def test_a_file_size_limit_is_found_before_the_training(runner: Runner, tmp_path: Path) -> None:
    script = f"ulimit -f 1; exec {runner.path} train --weights {runner.weights} --lr 0.1"
    script += f" --data {runner.data} --steps 3 --save {tmp_path / 'saved'}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert "File too large" in done.stderr
    assert not list(tmp_path.iterdir())


def bad_data(runner: Runner, path: Path) -> Path:
    """Seven batches, of which the fourth has a non-finite loss."""
    x = np.random.default_rng(2).standard_normal((7, 300)).astype(np.float32)
    x[3, 17] = np.inf
    save_file(as_rows({"x": x}), path)
    return path


def test_a_loss_that_is_not_finite_keeps_the_last_checkpoint(
    runner: Runner, tmp_path: Path
) -> None:
    data, saved = bad_data(runner, tmp_path / "data"), tmp_path / "saved"
    done = runner.train(7, "--save", saved, "--save-every", 2, data=data)
    assert done.returncode == 3
    assert "loss of step 4 is not finite" in done.stderr
    assert texts_of(saved)["pockengine.steps"] == "2"
    assert np.isfinite(load_file(saved)["point"]).all()


def test_a_rollback_goes_on_behind_the_bad_batch(runner: Runner, tmp_path: Path) -> None:
    data, saved = bad_data(runner, tmp_path / "data"), tmp_path / "saved"
    options = ("--save", saved, "--save-every", 2, "--on-nan", "rollback")
    records = lines(runner.train(7, *options, data=data))
    assert list(losses(records)) == [1, 2, 3, 4, 5, 6, 7]
    (back,) = (line for line in records if "rolled_back" in line)
    assert back["after"] == 4
    assert "step 4 is not finite" in str(back["why"])
    texts = texts_of(saved)
    assert (texts["pockengine.steps"], texts["pockengine.updates"]) == ("7", "5")
    assert np.isfinite(load_file(saved)["point"]).all()
    other = tmp_path / "other"  # resuming after the rollback gives the same training
    lines(runner.train(5, *("--save", other, *options[2:], "--total", 7), data=data))
    lines(runner.train(7, *("--save", other, *options[2:], "--resume"), data=data))
    assert load_file(other).keys() == load_file(saved).keys()
    for name, array in load_file(saved).items():
        np.testing.assert_array_equal(array, load_file(other)[name])


def test_rollbacks_without_end_are_a_divergence(runner: Runner, tmp_path: Path) -> None:
    data, saved = tmp_path / "data", tmp_path / "saved"
    save_file({"x": np.full(600, np.nan, np.float32)}, data)
    done = runner.train(99, "--save", saved, "--on-nan=rollback", data=data)
    assert done.returncode == 3
    assert done.stdout.count("rolled_back") == 3
    assert texts_of(saved)["pockengine.steps"] == "0"


def test_a_folder_loses_what_killed_runs_left(runner: Runner, tmp_path: Path) -> None:
    place = tmp_path / "folder"
    place.mkdir()
    (place / "step-0000000007.safetensors.partial").write_bytes(b"x" * 1000)
    (place / "notes.txt").write_text("mine")
    lines(runner.train(3, "--save", f"{place}/"))
    assert sorted(p.name for p in place.iterdir()) == ["notes.txt", "step-0000000003.safetensors"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--save-every", "2"), "need --save"),
        (("--resume",), "needs a place"),
        (("--save=x", "--resume", "--first-step=2"), "leave out --first-step"),
        (("--save=x", "--keep=2"), "needs a folder"),
        (("--save=x", "--keep=0"), "--keep takes N from 1 to 1000000000, not"),
        (("--seed=4294967296",), "--seed takes N from 0 to 4294967295, not"),
        (("--duty=0",), "--duty takes PERCENT from 1 to 100, not"),
        (("--lr=-1",), '--lr takes RATE that is 0, or from 1.4e-45 to 3.4e+38, not "-1"'),
        (("--on-nan=explode",), "takes stop|rollback"),
        (("--save-whole=yes",), "takes no value"),
        (("--output=x",), "train has no option --output"),
        (("--lr",), "needs a value"),
        (("banana",), "no option banana"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    runner: Runner, options: tuple[str, ...], words: str
) -> None:
    done = runner.train(1, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr


def test_an_unknown_command_is_named(runner: Runner) -> None:
    for words, fact in (
        (["trian"], 'there is no command "trian"; it is train, finetune'),
        ([], "the command is train, finetune"),
    ):
        done = runner.call(*words)
        assert done.returncode == 2
        assert fact in done.stderr


def test_an_unwritable_folder_is_found_before_the_training(runner: Runner, tmp_path: Path) -> None:
    place = tmp_path / "absent" / "deep"
    done = runner.train(1, "--save", f"{place}/")
    assert (done.returncode, done.stdout) == (1, "")
    assert "cannot make the folder" in done.stderr
    if os.geteuid() != 0:
        (tmp_path / "locked").mkdir(mode=0o500)
        assert runner.train(1, "--save", f"{tmp_path}/locked/").returncode == 1


def test_killed_trainings_resume_bit_for_bit(runner: Runner, tmp_path: Path) -> None:
    started = time.monotonic()
    outcome = kill_trainings(runner, tmp_path, count=12, seed=3)
    assert outcome.lost == outcome.different == 0, outcome
    assert outcome.kills >= 12
    assert time.monotonic() - started < 300
