"""Output of the runner's commands: info, evaluate, predict, export, help."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from pockengine import __version__
from pockengine.backends.specification import specification_of
from pockengine.compiler.ir import F32, Builder, Graph, TensorType
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.optim import Sgd
from pockengine.compiler.options import Training
from pockengine.tests.backends.c.programs import build_sanitized
from pockengine.tests.backends.c.runner import Runner, as_rows, initial, lines

SHAPE, PERMUTATION = (3, 5, 2), (2, 0, 1)
"""Shape of the weight in the framework, and its permutation to ours."""

COMMANDS = ("train", "evaluate", "predict", "export", "info")


def turned_graph() -> Graph:
    """A weight of three dimensions in another order than the framework's, and a frozen one."""
    graph = Graph('turned "net"')
    g = Builder(graph)
    ours = np.arange(30, dtype=np.float32).reshape(SHAPE).transpose(PERMUTATION).copy()
    x = g.input("x", TensorType(F32, ours.shape))
    weight = g.param("weight", ours, permutation=PERMUTATION)
    still = g.param("still", np.full(ours.shape, 0.5, np.float32))
    y = g.mul(g.sub(weight, x), still)
    g.output("y", y)
    g.output("loss", g.reduce_mean(g.square(y), axes=(0, 1, 2), keepdims=False))
    return graph


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    folder = tmp_path_factory.mktemp("commands")
    scheme = folder / "scheme.toml"
    scheme.write_text('default = "frozen"\n[params]\n"weight" = "full"\n')
    training = Training(scheme, Sgd(momentum=0.9))
    path, program = build_sanitized(turned_graph(), folder, training=training)
    weights, data = folder / "weights.safetensors", folder / "data.safetensors"
    save_file({**initial(program), **program.constants}, weights)
    shape = program.params["weight"].data.shape
    batches = np.random.default_rng(0).standard_normal((3, *shape)).astype(np.float32)
    save_file(as_rows({"x": batches}), data)
    return Runner(path, program, weights, data)


@pytest.fixture(scope="module")
def saved(runner: Runner, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "checkpoint"
    lines(runner.train(5, "--save", path))
    return path


def test_info_says_what_the_program_is(runner: Runner) -> None:
    program, *entries = lines(runner.call("info"))
    assert program["program"] == 'turned "net"'
    assert program["runtime"] == __version__
    expected = specification_of(runner.program, int(str(program["max_threads"])))
    assert program["specification"] == expected.digest()
    assert program["arena_bytes"] == runner.program.arena_bytes
    train = next(entry for entry in entries if entry["entry"] == "train")
    assert train["inputs"] == [{"name": "x", "dtype": "F32", "shape": [2, 3, 5]}]
    assert [row["name"] for row in train["controls"]] == ["lr"]  # type: ignore[attr-defined]
    assert {"name": "loss", "dtype": "F32", "shape": []} in train["outputs"]  # type: ignore[operator]
    params = [line for line in lines(runner.call("info", "--params")) if "param" in line]
    kinds = {row["param"]["name"]: row["kind"] for row in params}  # type: ignore[index]
    assert (kinds["weight"], kinds["still"]) == ("trained", "frozen")
    assert [kind for name, kind in kinds.items() if name.startswith("optimizer.")] == ["state"]


def test_evaluation_prints_the_means(runner: Runner, saved: Path) -> None:
    for files in ((), ("--checkpoint", saved)):
        fixed = ("--weights", runner.weights, "--data", runner.data)
        records = lines(runner.call("evaluate", *fixed, *files))
        assert [line["batch"] for line in records[:3]] == [1, 2, 3]
        state = initial(runner.program) | (load_file(saved) if files else {})
        graph = runner.program.entries["evaluate"].graph
        batches = load_file(runner.data)["x"].reshape(3, 2, 3, 5)
        losses = [float(run(graph, {"x": batch}, dict(state))["loss"]) for batch in batches]
        assert (records[3]["evaluated"], records[3]["rows"], records[3]["of"]) == (3, 6, 6)
        assert records[3]["loss"] == pytest.approx(np.mean(losses), rel=1e-5)


def test_export_writes_what_was_trained_in_the_models_order(
    runner: Runner, saved: Path, tmp_path: Path
) -> None:
    fixed = ("export", f"--weights={runner.weights}", "--checkpoint", saved, "--output")
    lines(runner.call(*fixed, tmp_path / "trained"))
    lines(runner.call(*fixed, tmp_path / "all", "--all"))
    expected = load_file(saved)["weight"].transpose(np.argsort(PERMUTATION))
    assert expected.shape == SHAPE
    trained, everything = load_file(tmp_path / "trained"), load_file(tmp_path / "all")
    assert list(trained) == ["weight"]
    assert sorted(everything) == ["still", "weight"]
    np.testing.assert_array_equal(trained["weight"], expected)
    np.testing.assert_array_equal(everything["weight"], expected)
    start = load_file(runner.weights)
    np.testing.assert_array_equal(
        everything["still"], start["still"].reshape(everything["still"].shape)
    )


def test_prediction_takes_a_checkpoint(runner: Runner, saved: Path, tmp_path: Path) -> None:
    fixed = ("predict", "--weights", runner.weights, "--data", runner.data, "--output")
    lines(runner.call(*fixed, tmp_path / "before"))
    lines(runner.call(*fixed, tmp_path / "after", "--checkpoint", saved))
    before, after = (load_file(tmp_path / name)["y"] for name in ("before", "after"))
    assert abs(after).mean() < abs(before).mean()


def test_a_checkpoint_alone_is_refused_where_weights_are_frozen(
    runner: Runner, saved: Path
) -> None:
    done = runner.train(1, weights=saved)
    assert done.returncode == 1
    assert "on top of other frozen weights" in done.stderr


def test_help_lists_the_commands_and_their_options(runner: Runner) -> None:
    done = runner.call("--help")
    assert done.returncode == 0
    assert all(f"  {command} " in done.stdout for command in COMMANDS)
    for command in COMMANDS:
        done = runner.call(command, "--help")
        assert done.returncode == 0
        assert ("--data" in done.stdout) == (command in COMMANDS[:3])
        assert max(map(len, done.stdout.splitlines())) <= 100
    assert "--save-every N" in runner.call("train", "--help").stdout


def test_a_value_may_follow_an_equals_sign(runner: Runner) -> None:
    spaced = runner.train(2, "--schedule", "linear")
    joined = runner.train(2, "--schedule=linear")
    strip = [{**json.loads(line), "ns": 0} for line in spaced.stdout.splitlines()[:2]]
    assert strip == [{**json.loads(line), "ns": 0} for line in joined.stdout.splitlines()[:2]]
    assert runner.call("banana").returncode == 2
    assert "train, finetune, evaluate, predict, export, info" in runner.call("banana").stderr
