"""The runner: training, prediction, invalid files, checkpoints, kills. All sanitized."""

import json
import os
import signal
import struct
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from pockengine.compiler.ir.evaluate import run
from pockengine.tests.backends.c.harness import SANITIZED
from pockengine.tests.backends.c.programs import (
    build_sanitized,
    convolutional_graph,
)
from pockengine.tests.backends.c.runner import RATE, Runner, initial, lines, point_runner


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    return point_runner(tmp_path_factory.mktemp("runner"))


def refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """Assert a failure with one plain line, and without a sanitizer report."""
    assert done.returncode == 1, (done.returncode, done.stderr)
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1, done.stderr
    for word in words:
        assert word in done.stderr


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_training_agrees_with_the_oracle(runner: Runner, tmp_path: Path, threads: int) -> None:
    saved = tmp_path / "out.safetensors"
    records = lines(runner.train(5, "--threads", threads, "--save", saved, "--repeat", 2))
    state = initial(runner.program)
    batches = load_file(runner.data)["x"].reshape(3, 300)
    for step in range(5):
        inputs = {"x": batches[step % 3], "lr": np.float32(RATE).reshape(())}
        loss = run(runner.program.entries["train"].graph, inputs, state)["loss"]
        assert records[step]["step"] == step + 1
        assert records[step]["loss"] == pytest.approx(float(loss), rel=1e-5)
    assert [line.get("repeat") for line in records[6:8]] == [1, 2]
    assert records[-1]["threads"] == threads
    assert records[-1]["arena_bytes"] == runner.program.arena_bytes
    found = load_file(saved)
    for name, array in state.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6, err_msg=name)


def test_a_checkpoint_continues_the_training(runner: Runner, tmp_path: Path) -> None:
    first, second, whole = (tmp_path / f"{i}.safetensors" for i in range(3))
    runner.train(3, "--save", first)
    runner.train(3, "--save", second, "--checkpoint", first)
    runner.train(6, "--save", whole)
    for name, array in load_file(whole).items():
        np.testing.assert_array_equal(array, load_file(second)[name])


def test_prediction_writes_every_row(runner: Runner, tmp_path: Path) -> None:
    output = tmp_path / "predictions.safetensors"
    done = runner.call(
        "predict", "--weights", runner.weights, "--data", runner.data, "--output", output
    )
    assert lines(done)[3] == {"predicted": 900, "path": str(output)}
    rows, point = load_file(runner.data)["x"], initial(runner.program)["point"]
    expected = abs(np.tile(point, 3) - rows)
    np.testing.assert_allclose(load_file(output)["distance"], expected, rtol=1e-6)


def test_wrong_usage_exits_with_two(runner: Runner) -> None:
    bare = runner.call()
    assert bare.returncode == 2
    assert "--help" in bare.stderr
    assert runner.call("train", "--weights", "w").returncode == 2
    assert runner.train(3, "--threads", "0").returncode == 2
    assert runner.train(3, "--banana", "1").returncode == 2
    assert runner.call("predict", "--weights", "a", "--data", "b").returncode == 2


def test_weights_of_another_model_are_refused_by_name(runner: Runner, tmp_path: Path) -> None:
    sound = load_file(runner.weights)
    path = tmp_path / "weights.safetensors"

    def attempt(arrays: Mapping[str, np.ndarray], *words: str) -> None:
        save_file(dict(arrays), path)
        refused(runner.train(1, weights=path), *words)

    attempt({**sound, "banana": np.zeros(3, np.float32)}, "banana", "does not have")
    attempt({key: sound[key] for key in sound if key != "point"}, "point", "does not hold")
    attempt({**sound, "point": np.zeros(299, np.float32)}, "point", "another dtype or shape")
    attempt({**sound, "point": np.zeros(300, np.float64)}, "point", "F64")
    refused(runner.train(1, weights=tmp_path / "absent"), "absent", "No such file")


def test_data_that_do_not_fit_are_refused_by_name(runner: Runner, tmp_path: Path) -> None:
    path = tmp_path / "data.safetensors"
    for arrays, word in (
        ({"x": np.zeros((2, 300), np.float32)}, "F32 [2, 300]; entry train takes rows"),
        ({"x": np.zeros(299, np.float32)}, "has 299 rows, and a batch of entry train takes 300"),
        ({"x": np.zeros(300, np.int32)}, "x is I32 [300]; entry train takes rows of it as F32 [N]"),
        ({"x": np.zeros(0, np.float32)}, "x is F32 [0]"),
        ({"y": np.zeros(300, np.float32)}, '"y"'),
        ({}, "does not hold x"),
    ):
        save_file(arrays, path)
        refused(runner.train(1, data=path), word)


def container(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(begin: int, end: int, shape: list[int], dtype: str = "F32") -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


HOSTILE: dict[str, bytes] = {
    "empty": b"",
    "short": b"\x01\x02",
    "length beyond the file": container({}, length=10**6),
    "absurd length": container({}, length=2**63),
    "not json": container(b"hello"),
    "array": container(b"[]"),
    "unfinished": container(b'{"point":{"dtype":"F32"'),
    "unfinished string": container(b'{"point'),
    "no comma": container(b'{"a":{} "b":{}}'),
    "trailing comma": container(b'{"__metadata__":{},}'),
    "text after the end": container(b"{}{}"),
    "zero bytes": container(b"{}\x00\x00"),
    "deep nesting": container(b'{"a":' + b"[" * 100_000),
    "nested metadata": container(b'{"__metadata__":{"a":{"b":"c"}}}'),
    "numbers in metadata": container(b'{"__metadata__":{"a":1}}'),
    "long name": container({"n" * 5000: entry(0, 4, [1])}, bytes(4)),
    "many dimensions": container({"a": entry(0, 4, [1] * 9)}, bytes(4)),
    "overflowing shape": container({"a": entry(0, 4, [2**40, 2**40])}, bytes(4)),
    "huge integer": container(b'{"a":{"dtype":"F32","shape":[99999999999999999999]'),
    "negative": container({"a": entry(-4, 0, [1])}, bytes(4)),
    "fraction": container(b'{"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}}', bytes(4)),
    "backward offsets": container({"a": entry(4, 0, [1])}, bytes(4)),
    "offsets against shape": container({"a": entry(0, 8, [1])}, bytes(8)),
    "overlap": container({"a": entry(0, 8, [2]), "b": entry(4, 12, [2])}, bytes(12)),
    "gap": container({"a": entry(0, 4, [1]), "b": entry(8, 12, [1])}, bytes(12)),
    "offset beyond the file": container({"a": entry(0, 4000, [1000])}, bytes(4)),
    "data beyond the header": container({"a": entry(0, 4, [1])}, bytes(400)),
    "unknown dtype": container({"a": entry(0, 4, [1], "F99")}, bytes(4)),
    "missing key": container({"a": {"dtype": "F32", "shape": [1]}}, bytes(4)),
    "unknown key": container({"a": {**entry(0, 4, [1]), "code": "x"}}, bytes(4)),
    "key twice": container(
        b'{"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}}', bytes(4)
    ),
    "bad escape": container(b'{"a\\q":{}}'),
    "escape outside of ascii": container(b'{"a\\ud800":{}}'),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused(runner: Runner, tmp_path: Path, name: str) -> None:
    path = tmp_path / "hostile"
    path.write_bytes(HOSTILE[name])
    refused(runner.train(1, weights=path), "hostile")
    refused(runner.train(1, data=path), "hostile")


def test_a_tensor_given_twice_is_refused(runner: Runner, tmp_path: Path) -> None:
    one = json.dumps({"point": entry(0, 1200, [300])})[1:-1]
    two = json.dumps({"point": entry(1200, 2400, [300])})[1:-1]
    path = tmp_path / "twice"
    path.write_bytes(container(f"{{{one},{two}}}".encode(), bytes(2400)))
    refused(runner.train(1, weights=path), "holds point twice")


def test_a_file_is_checked_whole_where_marks_are_few(tmp_path: Path) -> None:
    path, program = build_sanitized(convolutional_graph(), tmp_path, (*SANITIZED, "-DPE_MARKS=3"))
    weights = {**initial(program), **program.constants}
    assert len(weights) > 6
    checkpoint, saved, data = (tmp_path / name for name in ("in", "out", "data"))
    save_file({"x": np.zeros((4, 12, 12, 3), np.float32), "labels": np.zeros(4, int)}, data)
    runner = Runner(path, program, checkpoint, data)
    save_file(weights, checkpoint)
    assert runner.train(0, "--save", saved, "--save-whole").returncode == 0
    for name, array in load_file(saved).items():
        np.testing.assert_array_equal(array, weights[name])
    for name in weights:
        save_file({other: array for other, array in weights.items() if other != name}, checkpoint)
        refused(runner.train(0), f"does not hold {name}")


def test_random_damage_never_crashes(runner: Runner, tmp_path: Path) -> None:
    sound = runner.weights.read_bytes()
    header = 8 + struct.unpack("<Q", sound[:8])[0]
    rng = np.random.default_rng(7)
    path = tmp_path / "damaged"
    for _ in range(40):
        damaged = bytearray(sound)
        for _ in range(int(rng.integers(1, 4))):
            damaged[int(rng.integers(0, header))] = int(rng.integers(0, 256))
        path.write_bytes(damaged[: int(rng.integers(1, len(sound) + 1))])
        done = runner.train(1, weights=path)
        assert done.returncode in (0, 1), done.stderr
        assert "Sanitizer" not in done.stderr


def test_a_full_disk_is_named_and_leaves_the_old_checkpoint(runner: Runner) -> None:
    refused(runner.train(1, "--save", "/dev/full/x"), "cannot write")
    refused(runner.train(1, "--save", "/nonexistent/folder/x"), "No such file")


def test_a_file_size_limit_keeps_the_old_checkpoint(runner: Runner, tmp_path: Path) -> None:
    saved = tmp_path / "out.safetensors"
    lines(runner.train(1, "--save", saved))
    before = saved.read_bytes()
    script = f"ulimit -f 1; trap '' XFSZ; exec {runner.path} train --weights {runner.weights} "
    script += f"--data {runner.data} --steps 2 --lr 0.1 --save {saved}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    refused(done, "cannot write", "File too large")
    assert saved.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [saved.name]


def test_a_kill_at_any_moment_leaves_a_whole_checkpoint(runner: Runner, tmp_path: Path) -> None:
    saved = tmp_path / "out.safetensors"
    lines(runner.train(1, "--save", saved))
    old = saved.read_bytes()
    lines(runner.train(2, "--save", saved))
    new = saved.read_bytes()
    command = [str(runner.path), "train", "--weights", str(runner.weights), "--steps", "2"]
    command += ["--data", str(runner.data), "--lr", str(RATE), "--save", str(saved)]
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
    for delay in np.linspace(0.0, 0.06, 25):
        saved.write_bytes(old)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)
        time.sleep(float(delay))
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert saved.read_bytes() in (old, new)
