"""Subjects in int8: the int8 program is saved, compiled, costed and trained."""

from dataclasses import replace
from pathlib import Path

import pytest

from pockengine.backends.registry import backend_for
from pockengine.compiler.compile import compile_program
from pockengine.compiler.integers import Integers
from pockengine.compiler.ir import DType
from pockengine.compiler.optim import Sgd
from pockengine.compiler.options import Training
from pockengine.compiler.quantize.int8 import Int8
from pockengine.compiler.sparse import preset
from pockengine.devices import load_device
from pockengine.errors import FinetuneError
from pockengine.finetune.contributions import Item
from pockengine.finetune.cost import CostModel
from pockengine.finetune.front import device_table
from pockengine.finetune.recipe import Recipe
from pockengine.finetune.space import items_of, scheme_of
from pockengine.finetune.subject import Subject, load_subject
from pockengine.finetune.trial import compiled, run_trial
from pockengine.finetune.trial_channels import settle_channels
from pockengine.tests.finetune.tiny import tiny_subject, tiny_tuning

TUNING = tiny_tuning(200)
REAL = tiny_subject()
HOW = Int8({"x": TUNING.train.inputs["x"][:64]})
INT8 = Subject(REAL.name, HOW.apply(REAL.graph)[0], REAL.logits, HOW.integers())
F32_GRADIENTS = replace(INT8, integers=Integers(gradients="f32"))


def test_subject_saves_the_integer_settings(tmp_path: Path) -> None:
    F32_GRADIENTS.save(tmp_path)
    read = load_subject(tmp_path)

    assert read.quantize == Int8(gradients="f32", rounding="fixed")
    assert read.digest() == F32_GRADIENTS.digest() != INT8.digest()
    assert REAL.quantize is None
    assert replace(REAL, integers=F32_GRADIENTS.integers).digest() == REAL.digest()


def test_items_match_the_f32_model() -> None:
    assert items_of(INT8.graph) == items_of(REAL.graph)


def test_trial_trains_the_int8_program(tmp_path: Path) -> None:
    scheme, recipe = preset("full", INT8.graph), Recipe(0.05, 5)
    outcome = run_trial(INT8, scheme, recipe, TUNING.train, TUNING.validation, tmp_path)
    artifact = compiled(INT8, scheme, recipe.optimizer, tmp_path)

    assert outcome.score > 0.5
    dtypes = {artifact.params[f"layers.{layer}.weight"].type.dtype for layer in (0, 1)}
    assert dtypes == {DType.I8}


@pytest.mark.parametrize("subject", [INT8, F32_GRADIENTS])
def test_cost_matches_the_int8_program(subject: Subject) -> None:
    device, optimizer = load_device("rpi4"), Sgd(momentum=0.9)
    costs = CostModel(subject.graph, device, optimizer, subject.integers)
    training = Training("full", optimizer, integers=subject.integers)
    target = backend_for(device).target()
    program = compile_program(subject.graph, training, target=target)
    cost = costs.cost(preset("full", subject.graph))

    assert cost.arena_bytes == program.entries["train"].plan.size
    assert cost.cycles > 0


def test_devices_without_int8_have_a_row_with_the_reason() -> None:
    devices = [load_device("adreno-740"), load_device("rpi4")]
    table = device_table(INT8.graph, Training("full", integers=INT8.integers), devices)

    gpu, cpu = table.columns[1].cells
    assert gpu == "not compiled" != cpu


def test_channels_of_int8_weights_are_not_scored_by_data() -> None:
    scheme = scheme_of(INT8.graph, [Item("weight", "layers.1.weight", 0.5, "fisher")])
    with pytest.raises(
        FinetuneError, match=r"layers\.1\.weight of tiny is held as int8.*one of leading, mag"
    ):
        settle_channels(INT8, scheme, TUNING.train)
