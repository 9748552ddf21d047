"""The study of decoders: texts are split, trials are stored, gains are reported by block."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from pockengine import AdamW
from pockengine.compiler.ir import F32, Builder, Graph, TensorType
from pockengine.compiler.sparse import preset
from pockengine.errors import FinetuneError
from pockengine.finetune.contributions import Contributions, Gain, Item
from pockengine.finetune.recipe import Recipe
from pockengine.studies.decoders.desk import open_desk
from pockengine.studies.decoders.grid import cells_of, grid
from pockengine.studies.decoders.study import variant
from pockengine.studies.decoders.texts import ALPACA, CUTS, SHAKESPEARE, TEST_TASKS, Cut, cut
from pockengine.terminal import PlainConsole
from pockengine.tests.finetune.lm.decoders import save

DATA = Path(os.environ.get("POCKENGINE_DATA", ""))


def test_tasks_become_prompts_with_completions_and_none_is_in_both(tmp_path: Path) -> None:
    folder = tmp_path / "text" / "alpaca_seed"
    folder.mkdir(parents=True)
    tasks = [
        {"instruction": f"Do {place}.", "instances": [{"input": "so" * (place % 2), "output": "x"}]}
        for place in range(TEST_TASKS + 5)
    ]
    (folder / "seed_tasks.jsonl").write_text("\n".join(map(json.dumps, tasks)))
    found = cut(ALPACA, tmp_path, tmp_path)
    parts = [path.read_text().splitlines() for path in (found.tuned, found.test)]

    assert [len(part) for part in parts] == [5, TEST_TASKS]
    assert len({*parts[0], *parts[1]}) == len(tasks)
    row = {"prompt": "Instruction: Do 1.\nInput: so\nAnswer:", "completion": " x"}
    assert row in [json.loads(line) for part in parts for line in part]


def test_texts_that_are_missing_are_named(tmp_path: Path) -> None:
    with pytest.raises(FinetuneError, match=f"the texts {SHAKESPEARE} below .* cannot be read"):
        cut(SHAKESPEARE, tmp_path, tmp_path)


@pytest.mark.parametrize("name", CUTS)
def test_real_texts_are_cut_into_two_that_share_nothing(name: str, tmp_path: Path) -> None:
    if not (DATA / "text" / "tinyshakespeare").is_dir():
        pytest.skip("needs text/tinyshakespeare and text/alpaca_seed of POCKENGINE_DATA")
    found = cut(name, DATA, tmp_path)
    tuned, test = ({*path.read_text().splitlines()} for path in (found.tuned, found.test))
    long = {line for line in tuned & test if len(line) > 40}

    assert min(len(tuned), len(test)) >= TEST_TASKS
    assert len(long) < 0.01 * len(test)


def test_a_trial_runs_once_and_test_texts_are_no_validation_texts(tmp_path: Path) -> None:
    model = save(tmp_path / "model")
    texts = [tmp_path / name for name in ("tuned.txt", "test.txt")]
    texts[0].write_text("the quick brown fox jumps over the lazy dog; " * 8)
    texts[1].write_text("all work and no play makes a dull boy; " * 3)
    with ThreadPoolExecutor(1) as executor:
        desk = open_desk(
            model, Cut(texts[0], texts[1], epochs=1), tmp_path / "work", executor, length=32
        )
        run = (preset("head-only", desk.subject.graph), Recipe(0.01, 1, optimizer=AdamW()))
        first = desk.tested([run])
        lines = desk.journal.path.read_text().splitlines()

        assert desk.tested([run, run]) == [*first, *first]
        assert desk.journal.path.read_text().splitlines() == lines
        assert desk.validated([run])[0].score != first[0].score
    assert len(lines) == 1


def test_gains_are_reported_by_block_and_matrix() -> None:
    gains = {
        Item("biases", "last 1 blocks"): Gain(0.01, 0.0, 2),
        Item("biases", "last 2 blocks"): Gain(0.02, 0.0, 2),
        Item("weight", "model.layers.0.self_attn.q_proj.weight"): Gain(0.03, 0.0, 2),
        Item("weight", "model.layers.1.mlp.gate_proj.weight"): Gain(-0.04, 0.0, 2),
    }
    table = Contributions(-3.0, gains, None, "held-out loss")
    console = PlainConsole(120)
    with console.capture() as captured:
        console.print(grid("gains", table))

    assert cells_of(table) == {
        0: {"q": pytest.approx(3), "norms from here": pytest.approx(2)},
        1: {"gate": pytest.approx(-4), "norms from here": pytest.approx(1)},
    }
    assert "-4.0" in captured.get()


def test_a_variant_trains_other_matrices_in_the_blocks_of_its_preset() -> None:
    g = Builder(Graph("llama"))
    x = g.input("x", TensorType(F32, (2, 4)))
    for block in range(3):
        for name in ("self_attn.q", "self_attn.v", "mlp.gate", "mlp.down"):
            weight = g.param(f"layers.{block}.{name}_proj.weight", np.ones((4, 4), np.float32))
            x = g.matmul(x, weight)
        x = g.mul(x, g.param(f"layers.{block}.input_layernorm.weight", np.ones(4, np.float32)))
    x = g.mul(x, g.param("model.norm.weight", np.ones(4, np.float32)))
    g.graph.outputs["loss"] = g.reduce_mean(x, axes=(0, 1))

    found = [
        set(variant(g.graph, "mlp", base, ("gate", "down")).resolve(g.graph))
        for base in ("sparse", "sparse-2-2")
    ]

    assert found[1] == {
        "layers.2.mlp.gate_proj.weight",
        "layers.2.mlp.down_proj.weight",
        "layers.2.input_layernorm.weight",
        "model.norm.weight",
    }
    assert found[0] - found[1] == {"layers.1.input_layernorm.weight"}
