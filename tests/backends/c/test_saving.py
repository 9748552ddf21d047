"""Paths where the runner saves, and paths that it never overwrites, with the sanitized runner."""

import errno
import os
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from pockengine.tests.backends.c.runner import RATE, Runner, lines, point_runner


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    return point_runner(tmp_path_factory.mktemp("saving"))


@pytest.fixture
def saved(runner: Runner, tmp_path: Path) -> Path:
    """A valid checkpoint."""
    path = tmp_path / "out.safetensors"
    lines(runner.train(1, "--save", path))
    return path


def refused_before_training(runner: Runner, path: Path, words: str) -> None:
    done = runner.train(2, "--save", path)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert words in done.stderr
    assert "Sanitizer" not in done.stderr


def test_only_regular_files_are_replaced(runner: Runner, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "device").symlink_to("/dev/full")
    for path in (Path("/dev/full"), *(tmp_path / name for name in ("fifo", "device"))):
        refused_before_training(runner, path, "no regular file")
    assert Path("/dev/full").is_char_device()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["device", "fifo"]


def test_an_unwritable_place_is_found_before_the_training(runner: Runner, tmp_path: Path) -> None:
    refused_before_training(runner, tmp_path / "absent" / "x", os.strerror(errno.ENOENT))
    refused_before_training(runner, tmp_path / ("n" * 300), os.strerror(errno.ENAMETOOLONG))
    refused_before_training(runner, runner.data / "x", os.strerror(errno.ENOTDIR))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["train", "predict", "export"])
@pytest.mark.parametrize("to", ["a file", "nothing"])
def test_a_link_is_replaced_and_its_target_stays(
    runner: Runner, tmp_path: Path, command: str, to: str
) -> None:
    target, link = tmp_path / "thesis", tmp_path / "lnk"
    if to == "a file":
        target.write_text("years of work")
        target.chmod(0o600)
    link.symlink_to(target.name)
    fixed = ("--weights", runner.weights)
    if command == "train":
        lines(runner.train(2, "--save", link))
    elif command == "predict":
        lines(runner.call("predict", *fixed, "--data", runner.data, "--output", link))
    else:
        lines(runner.call("export", *fixed, "--output", link))
    assert not link.is_symlink()
    assert load_file(link)
    if to == "a file":
        assert target.read_text() == "years of work"
        assert link.stat().st_mode & 0o777 == 0o600
    assert target.exists() == (to == "a file")


def test_a_partial_file_that_is_a_link_is_left_alone(runner: Runner, tmp_path: Path) -> None:
    victim, path = tmp_path / "thesis", tmp_path / "out"
    victim.write_text("years of work")
    (tmp_path / "out.partial").symlink_to(victim)
    os.link(victim, tmp_path / "out.partial1")
    (tmp_path / "out.partial2").mkdir()
    lines(runner.train(1, "--save", path))
    assert victim.read_text() == "years of work"
    assert path.is_file()
    assert not path.is_symlink()
    assert not (tmp_path / "out.partial3").exists()


def test_what_a_killed_run_left_is_taken_over(runner: Runner, tmp_path: Path) -> None:
    path = tmp_path / "out"
    lines(runner.train(1, "--save", path))
    expected = path.read_bytes()
    (tmp_path / "out.partial").write_bytes(b"x" * 100_000)
    lines(runner.train(1, "--save", path))
    assert path.read_bytes() == expected
    assert list(tmp_path.iterdir()) == [path]


def test_savers_of_one_path_do_not_disturb_each_other(
    runner: Runner, saved: Path, tmp_path: Path
) -> None:
    whole = {saved.read_bytes()}
    for steps in (2, 3):
        other = tmp_path / str(steps)
        lines(runner.train(steps, "--save", other))
        whole.add(other.read_bytes())
        other.unlink()
    fixed = ["--weights", str(runner.weights), "--data", str(runner.data), "--lr", str(RATE)]
    command = [str(runner.path), "train", *fixed, "--save", str(saved), "--steps"]
    for _ in range(4):
        savers = [
            subprocess.Popen([*command, str(steps)], stdout=subprocess.DEVNULL)
            for steps in (1, 2, 3, 1, 2, 3)
        ]
        while any(saver.poll() is None for saver in savers):
            assert saved.read_bytes() in whole
        assert [saver.returncode for saver in savers] == [0] * 6
    assert list(tmp_path.iterdir()) == [saved]


@pytest.mark.parametrize("stdout", ["closed", "full"])
def test_a_lost_report_does_not_lose_the_training(
    runner: Runner, tmp_path: Path, stdout: str
) -> None:
    path, expected = tmp_path / "out", tmp_path / "expected"
    lines(runner.train(3, "--save", expected))
    command = [str(runner.path), "train", "--weights", str(runner.weights), "--steps", "3"]
    command += ["--data", str(runner.data), "--lr", str(RATE), "--save", str(path)]
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as pipe, open("/dev/full", "wb", buffering=0) as full:
        out = pipe if stdout == "closed" else full
        done = subprocess.run(
            command,
            stdout=out,
            stderr=subprocess.PIPE,
            check=False,
            preexec_fn=lambda: signal.signal(signal.SIGPIPE, signal.SIG_DFL),
        )
    assert done.returncode == 4
    assert b"standard output" in done.stderr
    assert path.read_bytes() == expected.read_bytes()


@pytest.mark.parametrize(
    "option",
    [
        *(("--lr", rate) for rate in ("1e39", "nan", "inf", "-0.1", "1e-60", "", "0.1x")),
        *(("--first-step", step) for step in ("0", "-1", "1.5", "99999999999999999999", "")),
        ("--total", "0"),
        ("--warmup", "-1"),
        ("--seed", "4294967296"),
        ("--repeat", "-1"),
        ("--save", ""),
    ],
)
def test_arguments_that_would_ruin_a_training_are_refused(
    runner: Runner, saved: Path, option: tuple[str, str]
) -> None:
    before = saved.read_bytes()
    done = runner.train(2, "--save", saved, *option)
    assert (done.returncode, done.stdout) == (2, "")
    assert saved.read_bytes() == before


def test_a_warm_up_without_an_end_is_refused(runner: Runner) -> None:
    done = runner.train(3, "--schedule", "cosine", "--warmup", "3")
    assert (done.returncode, done.stdout) == (2, "")
    assert "say --total" in done.stderr
    assert runner.train(3, "--schedule", "cosine", "--warmup", "3", "--total", 4).returncode == 0


def test_steps_beyond_the_counter_are_refused(runner: Runner) -> None:
    billion = 1_000_000_000
    done = runner.train(billion, "--first-step", billion, "--repeat", billion)
    assert (done.returncode, done.stdout) == (2, "")
    assert "steps beyond" in done.stderr


def test_a_loss_that_is_not_finite_ends_the_training(runner: Runner, saved: Path) -> None:
    before = saved.read_bytes()
    done = runner.train(9, "--lr", "1e38", "--save", saved)
    assert done.returncode == 3
    assert "is not finite" in done.stderr
    assert "saved" not in done.stdout
    assert done.stdout.count("\n") < 9
    assert saved.read_bytes() == before


def test_params_that_are_not_finite_are_not_saved(runner: Runner, saved: Path) -> None:
    before, data = saved.read_bytes(), saved.parent / "large"
    save_file({"x": np.full(300, 1000, np.float32)}, data)
    done = runner.train(1, "--lr", "3e38", "--save", saved, data=data)
    assert done.returncode == 3  # the step's loss was finite, the updated params are not
    assert "point is not finite at element 0" in done.stderr or "momentum" in done.stderr
    assert "saved" not in done.stdout
    assert saved.read_bytes() == before


def test_a_first_step_reads_its_own_batch(runner: Runner, tmp_path: Path) -> None:
    x, data = load_file(runner.data)["x"].reshape(3, 300), tmp_path / "data"
    for step in (2, 3, 4):
        save_file({"x": x[(step - 1) % 3]}, data)
        (expected, *_) = lines(runner.train(1, data=data))
        (found, *_) = lines(runner.train(1, "--first-step", step))
        assert (found["step"], found["loss"]) == (step, expected["loss"])


def test_a_first_step_replaces_the_checkpoints(runner: Runner, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    lines(runner.train(2, "--save", saved))
    assert lines(runner.train(1, "--checkpoint", saved))[0]["step"] == 3
    first = runner.train(1, "--first-step", 1, "--checkpoint", saved)
    assert lines(first)[0]["step"] == 1
