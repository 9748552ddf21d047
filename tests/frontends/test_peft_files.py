"""Adapter folders without peft: contents, errors for damaged or foreign ones."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import F32, I64, Builder, Graph, Node, TensorType
from pockengine.compiler.options import Training
from pockengine.compiler.sparse import Scheme
from pockengine.compiler.sparse.lora import lora
from pockengine.errors import AdapterError, PockEngineError
from pockengine.frontends.peft.files import CONFIG, WEIGHTS, TunedParams, save_adapters
from pockengine.frontends.peft.load import load_adapters
from pockengine.frontends.peft.places import PREFIX

Arrays = dict[str, np.ndarray]
SCHEME = lora(2, 4, ["*.query.weight"], ["head.*"])


def network() -> Graph:
    """Two layers stored like imported PyTorch linears, one like transformers' Conv1D, a head."""
    g, rng = Builder(Graph("net")), np.random.default_rng(0)

    def weight(name: str, *shape: int, turned: bool = False) -> None:
        data = rng.standard_normal(shape).astype(np.float32)
        g.param(name, data, permutation=(1, 0) if turned else None)

    x, target = g.input("x", TensorType(F32, (3, 4))), g.input("target", TensorType(I64, (3,)))
    weight("a.query.weight", 4, 6, turned=True)
    weight("b.query.weight", 6, 4, turned=True)
    weight("c.weight", 4, 5)
    weight("head.weight", 5, 3, turned=True)
    weight("head.bias", 3)
    weight("c.scale", 5)
    weight("loose", 3)
    for name in ("a.query.weight", "b.query.weight", "c.weight"):
        x = g.tanh(g.matmul(x, g.graph.params[name].value))
    x = g.mul(x, g.graph.params["c.scale"].value)
    x = g.matmul(x, g.graph.params["head.weight"].value)
    x = g.add(g.add(x, g.graph.params["head.bias"].value), g.graph.params["loose"].value)
    g.output("loss", g.cross_entropy(x, target))
    return g.graph


def tuned(scheme: Scheme = SCHEME) -> tuple[TunedParams, Arrays]:
    """Return tuned params, with random values in place of training."""
    graph, rng = network(), np.random.default_rng(1)
    program = compile_program(graph, Training(scheme))
    values = {
        name: rng.standard_normal(param.value.shape).astype(np.float32)
        if name in program.scheme
        else param.data
        for name, param in program.params.items()
    }
    return TunedParams(graph, program.adapters, tuple(program.scheme)), values


def saved(folder: Path, scheme: Scheme = SCHEME) -> tuple[TunedParams, Arrays]:
    tuning, values = tuned(scheme)
    save_adapters(tuning, values, folder)
    return tuning, values


def test_saved_adapters_load_back(tmp_path: Path) -> None:
    tuning, values = saved(tmp_path / "new" / "adapter")
    found = load_adapters(tuning, tmp_path / "new" / "adapter")
    assert found.keys() == set(tuning.trained)
    for name, array in found.items():
        np.testing.assert_array_equal(array, values[name])
    weights = load_file(tmp_path / "new" / "adapter" / WEIGHTS)
    assert {key.removeprefix(PREFIX): array.shape for key, array in weights.items()} == {
        "a.query.lora_A.weight": (2, 4),
        "a.query.lora_B.weight": (6, 2),
        "b.query.lora_A.weight": (2, 6),
        "b.query.lora_B.weight": (4, 2),
        "head.weight": (3, 5),
        "head.bias": (3,),
    }
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["adapter"]


def test_saving_preserves_other_files_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    tuning, values = saved(tmp_path)
    values["head.bias"] = values["head.bias"] + 1
    save_adapters(tuning, values, tmp_path)
    np.testing.assert_array_equal(load_adapters(tuning, tmp_path)["head.bias"], values["head.bias"])
    assert {path.name for path in tmp_path.iterdir()} == {"tokenizer.json", CONFIG, WEIGHTS}


def test_a_weight_stored_inputs_first_sets_fan_in_fan_out(tmp_path: Path) -> None:
    saved(tmp_path, lora(2, 4, ["c.weight"]))
    assert json.loads((tmp_path / CONFIG).read_text())["fan_in_fan_out"] is True
    assert load_file(tmp_path / WEIGHTS)[f"{PREFIX}c.lora_A.weight"].shape == (2, 4)


def test_if_only_biases_train_beside_adapters_all_biases_are_saved(tmp_path: Path) -> None:
    saved(tmp_path, lora(2, 4, ["head.weight"], ["head.bias"]))
    config = json.loads((tmp_path / CONFIG).read_text())
    assert (config["bias"], config["modules_to_save"]) == ("all", None)
    assert f"{PREFIX}head.base_layer.bias" in load_file(tmp_path / WEIGHTS)


def test_unrepresentable_adapters_are_reported(tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match=r"loose: in no module"):
        saved(tmp_path, lora(2, 4, ["c.weight"], ["loose"]))
    with pytest.raises(AdapterError, match="c: adapted, and of c that train whole"):
        saved(tmp_path, lora(2, 4, ["c.weight"], ["c.scale"]))
    tuning, values = tuned()
    reader = next(node for node in tuning.graph.nodes if node.op == "matmul")
    tuning.graph.nodes.append(Node("matmul", reader.operands, (), {}, "twin"))
    with pytest.raises(AdapterError, match=r"a.query.weight is shared by .*twin"):
        save_adapters(tuning, values, tmp_path)
    with pytest.raises(AdapterError, match="no LoRA adapters"):
        saved(tmp_path, Scheme("head", (("head.*", SCHEME.rules[-1][1]),)))


def edit(**changes: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        config = json.loads((folder / CONFIG).read_text())
        (folder / CONFIG).write_text(json.dumps({**config, **changes}))

    return change


def put(**tensors: np.ndarray | None) -> Callable[[Path], None]:
    """Replace tensors, or remove those that are None; __ in a name stands for a dot."""

    def change(folder: Path) -> None:
        weights = load_file(folder / WEIGHTS)
        weights.update(
            {PREFIX + n.replace("__", "."): a for n, a in tensors.items() if a is not None}
        )
        gone = {PREFIX + n.replace("__", ".") for n, a in tensors.items() if a is None}
        save_file({n: a for n, a in weights.items() if n not in gone}, folder / WEIGHTS)

    return change


def pickled(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "adapter_model.bin")


def f32(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


FAULTS: dict[str, tuple[Callable[[Path], None], str]] = {
    "no config": (lambda folder: (folder / CONFIG).unlink(), "adapter_config.json.*No such file"),
    "not json": (lambda folder: (folder / CONFIG).write_text("{"), "adapter_config.json"),
    "deep": (lambda folder: (folder / CONFIG).write_text("[" * 100_000), "adapter_config.json"),
    "huge": (lambda folder: (folder / CONFIG).write_text(" " * (2 << 20)), "above 1048576 bytes"),
    "a list": (lambda folder: (folder / CONFIG).write_text("[]"), "peft_type is None"),
    "another method": (edit(peft_type="IA3"), "peft_type is 'IA3'"),
    "dora": (edit(use_dora=True), r"lora = 2, alpha = 4, dora = true"),
    "changed base": (edit(init_lora_weights="pissa"), "init_lora_weights = 'pissa'"),
    "unhashable": (edit(init_lora_weights=[1]), "init_lora_weights"),
    "newer format": (edit(use_more=1), "use_more = 1 is not supported"),
    "other alpha": (edit(lora_alpha=8), r'"a.query.weight" = \{ lora = 2, alpha = 8 \}'),
    "nearly this alpha": (edit(lora_alpha=4.0000048), r"= \{ lora = 2, alpha = 4\.0000048 \}"),
    "rslora": (edit(use_rslora=True), r"lora = 2, alpha = 4, rslora = true"),
    "rank of another": (edit(r=3), "says rank 3, lora_A is"),
    "no alpha": (edit(lora_alpha=None), "lora_alpha of a.query is None"),
    "infinite alpha": (edit(lora_alpha=float("inf")), "lora_alpha of a.query is inf"),
    "alpha by expression": (edit(alpha_pattern={"(a+)+$": 3}), "are not run"),
    "patterns of a list": (edit(rank_pattern=[1]), "rank_pattern must map"),
    "a pickle": (pickled, "a pickle, which can run code"),
    "no tensors": (lambda folder: (folder / WEIGHTS).unlink(), WEIGHTS),
    "cut": (lambda f: (f / WEIGHTS).write_bytes((f / WEIGHTS).read_bytes()[:-9]), WEIGHTS),
    "missing": (put(a__query__lora_B__weight=None), "lacks .*a.query.lora_B.weight"),
    "shape": (put(a__query__lora_B__weight=f32(5, 2)), r"is \[5, 2\]; the model needs \[6, 2\]"),
    "rank": (put(a__query__lora_A__weight=f32(3, 4)), r"says rank 2, lora_A is \[3, 4\]"),
    "a scalar": (put(a__query__lora_A__weight=f32()), r"lora_A is \[\]"),
    "not finite": (put(head__bias=f32(3) * np.nan), "head.bias .* must be finite"),
    "integers": (put(head__bias=np.ones(3, np.int64)), r"head.bias \(i64\)"),
    "f64": (put(head__bias=np.ones(3)), r"head.bias \(a type not read here\) must be .* bf16"),
    "an extra adapter": (
        put(c__lora_A__weight=f32(2, 4)),
        r'"c.weight" = \{ lora = 2, alpha = 4 \}',
    ),
    "half of an adapter": (put(c__lora_B__weight=f32(5, 2)), "without its lora_A"),
    "frozen here": (put(c__weight=f32(4, 5)), r'c.weight was trained.*"c.weight" = "full"'),
    "another model's": (put(d__weight=f32(4)), "no parameter d.weight"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_folder_is_reported_by_name(tmp_path: Path, fault: str) -> None:
    tuning, _ = saved(tmp_path)
    change, message = FAULTS[fault]
    change(tmp_path)
    with pytest.raises(AdapterError, match=message):
        load_adapters(tuning, tmp_path)


def test_frozen_params_may_be_present_unchanged(tmp_path: Path) -> None:
    tuning, _ = saved(tmp_path)
    put(c__weight=tuning.graph.params["c.weight"].data)(tmp_path)
    assert "c.weight" not in load_adapters(tuning, tmp_path)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
@given(
    name=st.sampled_from([CONFIG, WEIGHTS]), place=st.integers(0, 10_000), byte=st.integers(1, 255)
)
def test_a_changed_byte_never_crashes(tmp_path: Path, name: str, place: int, byte: int) -> None:
    tuning, _ = saved(tmp_path)
    data = bytearray((tmp_path / name).read_bytes())
    data[place % len(data)] ^= byte
    (tmp_path / name).write_bytes(bytes(data))
    try:
        found = load_adapters(tuning, tmp_path)
    except PockEngineError:
        return
    assert found.keys() == set(tuning.trained)
