"""LoRA adapters in the NumPy oracle, compared with finite differences and the merged model."""

from pathlib import Path

import numpy as np
import pytest

from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import F32, I64, Graph, TensorType
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.optim import Adam, Sgd
from pockengine.compiler.options import Training
from pockengine.compiler.program import Program
from pockengine.compiler.sparse import Scheme, load_scheme, save_scheme
from pockengine.compiler.sparse.lora import lora, merged, with_folded
from pockengine.errors import SchemeError
from pockengine.tests.compiler.small_nets import NetBuilder, attention_net, batches, residual_net

Arrays = dict[str, np.ndarray]
RATE = 0.1
STEP = np.float32(3e-4)
"""Step too small to cross kinks of relu6, and far above the rounding error of a loss."""
CONVS = lora(2, 6, ["a.0.weight", "c.0.weight"], ["fc.*"])


def tied_net() -> Graph:
    """A weight that is read twice, once transposed, then a linear layer stored as [out, in]."""
    net = NetBuilder("tied")
    x = net.g.input("x", TensorType(F32, (5, 6)))
    target = net.g.input("target", TensorType(I64, (5,)))
    w = net.weight("tied.weight", 6, 4)
    y = net.g.matmul(net.g.tanh(net.g.matmul(x, w)), w, transpose_b=True)
    y = net.g.matmul(y, net.weight("out.weight", 3, 6), transpose_b=True)
    net.g.output("loss", net.g.cross_entropy(y, target))
    net.g.output("output", y)
    return net.g.graph


def tied_batch() -> Arrays:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((5, 6)).astype(np.float32)
    return {"x": x, "target": rng.integers(0, 3, 5)}


def with_products(program: Program) -> Arrays:
    """Return all params, with a random B: a zero B hides the gradient of A."""
    rng = np.random.default_rng(2)
    values = {name: param.data.copy() for name, param in program.params.items()}
    for adapter in program.adapters:
        for name in adapter.trained[1:]:
            drawn = 0.3 * rng.standard_normal(values[name].shape)
            values[name] = (values[name] + drawn).astype(np.float32)
    return values


CASES = {
    "convolutions": (residual_net, CONVS, batches(1)[0]),
    "tied": (tied_net, lora(3, 3, ["*.weight"]), tied_batch()),
}


@pytest.mark.parametrize("case", CASES)
def test_gradients_match_finite_differences(case: str) -> None:
    build, scheme, batch = CASES[case]
    program = compile_program(build(), Training(scheme, Sgd()), check=True)
    values = with_products(program)
    after = dict(values)
    run(program.entries["train"].graph, {**batch, "lr": np.float32(RATE)}, after)
    evaluate = program.entries["train"].graph  # batch norm with batch statistics, as in training
    rng = np.random.default_rng(4)
    for adapter in program.adapters:
        for name in (adapter.a, adapter.b):
            step = rng.standard_normal(values[name].shape).astype(np.float32)
            sides = [{**values, name: values[name] + sign * STEP * step} for sign in (1, -1)]
            feed = {**batch, "lr": np.float32(0)}
            high, low = (float(run(evaluate, feed, side)["loss"]) for side in sides)
            gradient = (values[name] - after[name]) / RATE
            slope = float((gradient * step).sum())
            assert slope == pytest.approx((high - low) / (2 * STEP), rel=5e-3, abs=1e-3)
            assert abs(slope) > 5e-3


DORA = {
    "magnitudes": (tied_net, lora(3, 3, ["out.weight"], dora=True), tied_batch()),
    "root of the rank": (tied_net, lora(3, 3, ["*.weight"], rslora=True), tied_batch()),
}


@pytest.mark.parametrize("case", [*CASES, *DORA])
def test_merged_model_matches_the_adapted_model(case: str) -> None:
    build, scheme, batch = {**CASES, **DORA}[case]
    graph = build()
    program = compile_program(graph, Training(scheme), check=True)
    values = with_products(program)
    plain = compile_program(build(), Training("full"), check=True)
    whole = merged(program.adapters, with_folded(graph, program.adapters, values))
    assert set(whole) >= {adapter.weight for adapter in program.adapters}
    assert not any(".lora_" in name for name in whole)
    data = {name: batch[name] for name in ("x", "target")}
    found = run(program.entries["evaluate"].graph, data, values)
    expected = run(plain.entries["evaluate"].graph, data, {**start(plain), **whole})
    np.testing.assert_allclose(found["loss"], expected["loss"], rtol=1e-5)
    before = run(plain.entries["evaluate"].graph, data, start(plain))
    assert abs(before["loss"] - found["loss"]) > 1e-3


def start(program: Program) -> Arrays:
    return {name: param.data.copy() for name, param in program.params.items()}


def test_adapted_model_starts_unchanged_and_only_factors_train() -> None:
    adapted = compile_program(residual_net(), Training(CONVS, Adam()))
    plain = compile_program(residual_net(), Training("full"))
    batch = batches(1)[0]
    step = {"step": np.asarray(1, np.int32)}
    values = start(adapted)
    loss = run(adapted.entries["train"].graph, {**batch, **step}, values)["loss"]
    assert loss == run(plain.entries["train"].graph, batch, start(plain))["loss"]
    changed = {n for n, p in adapted.params.items() if not np.array_equal(p.data, values[n])}
    factors = {"a.0.weight.lora_B", "c.0.weight.lora_B"}  # A has no gradient while B is zero
    assert {n for n in changed if "optimizer" not in n and "running" not in n} == {
        *factors,
        "fc.weight",
        "fc.bias",
    }
    moments = {n for n in adapted.params if n.startswith("optimizer.")}
    assert not any(n.endswith(("a.0.weight", "c.0.weight")) for n in moments)


def test_initial_factors_match_peft_and_are_deterministic() -> None:
    one, two = (compile_program(residual_net(), Training(CONVS)).params for _ in range(2))
    a, b = one["a.0.weight.lora_A"].data, one["a.0.weight.lora_B"].data
    assert a.shape == (3, 3, 4, 2)
    assert b.shape == (1, 1, 2, 8)
    assert not b.any()
    assert 0.8 / 6 < np.abs(a).max() <= 1 / 6  # 36 inputs of a tap
    np.testing.assert_array_equal(a, two["a.0.weight.lora_A"].data)
    other = lora(2, 6, ["a.0.weight"], seed=1)
    changed = compile_program(residual_net(), Training(other)).params["a.0.weight.lora_A"].data
    assert not np.array_equal(a, changed)


def test_micro_batches_and_a_budget_preserve_results() -> None:
    batch = batches(1)[0]
    ends = []
    for extra in ({}, {"micro_batches": 2}, {"memory_budget": 16000}):
        program = compile_program(residual_net(), Training(CONVS, **extra), check=True)
        values = with_products(program)
        for _ in range(2 if "micro_batches" in extra else 1):
            run(program.entries["train"].graph, batch, values)
        if "micro_batches" in extra:
            run(program.entries["update"].graph, {"lr": batch["lr"]}, values)
        ends.append(values)
    for name in ("a.0.weight.lora_A", "c.0.weight.lora_B", "fc.weight"):
        for values in ends[1:]:
            np.testing.assert_allclose(values[name], ends[0][name], rtol=1e-4, atol=1e-6)


def test_scheme_file_sets_adapters(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(
        '[params]\n"fc.*" = "full"\n"c.0.weight" = { lora = 2, alpha = 4, rslora = true }\n'
    )
    scheme = load_scheme(path)
    assert scheme.rules[1] == lora(2, 4, ["c.0.weight"], rslora=True).rules[0]
    save_scheme(scheme, path)
    assert load_scheme(path) == scheme
    assert compile_program(residual_net(), Training(path)).adapters[0].weight == "c.0.weight"


def test_preset_adapts_queries_and_values_and_trains_the_head() -> None:
    net = NetBuilder("net")
    g = net.g
    x, target = g.input("x", TensorType(F32, (2, 8))), g.input("target", TensorType(I64, (2,)))
    for name in ("q_proj", "k_proj", "v_proj"):
        x = g.add(g.matmul(x, net.weight(f"layer.0.attn.{name}.weight", 8, 8)), x)
    y = g.add(g.matmul(x, net.weight("head.weight", 8, 3)), net.weight("head.bias", 3))
    g.output("loss", g.cross_entropy(y, target))
    for preset, rank, kind in (("lora", 8, "lora"), ("lora-2", 2, "lora"), ("dora-2", 2, "dora")):
        program = compile_program(g.graph, Training(preset))
        assert {(a.weight, a.rank, a.scale, a.kind) for a in program.adapters} == {
            ("layer.0.attn.q_proj.weight", rank, 2.0, kind),
            ("layer.0.attn.v_proj.weight", rank, 2.0, kind),
        }
        assert {"head.weight", "head.bias"} < set(program.scheme)
        assert len(program.scheme) == (6 if kind == "lora" else 8)


def check_error(graph: Graph, scheme: Scheme | str, match: str) -> None:
    with pytest.raises(SchemeError, match=match):
        compile_program(graph, Training(scheme))


def test_unsupported_adapters_are_reported() -> None:
    check_error(residual_net(), lora(9, 1, ["c.0.weight"]), r"c.0.weight.*rank 9 is above 8")
    check_error(residual_net(), lora(2, 1, ["fc.bias"]), "fc.bias.*a bias; it is for linear")
    convolution, tied = (lora(2, 1, [name], dora=True) for name in ("c.0.weight", "tied.weight"))
    check_error(residual_net(), convolution, "c.0.weight.*DoRA is for linear layers")
    check_error(tied_net(), tied, "tied.weight.*read transposed too; leave dora out")
    check_error(residual_net(), lora(1, 1, ["b.0.weight"]), "b.0.weight.*has 8 groups")
    check_error(residual_net(), lora(2, 1, ["d.*"]), "'d.\\*' matches no parameter")
    check_error(residual_net(), "lora-2", "no attention projection has a known name")
    check_error(attention_net(), "lora-0", "rank must be at least 1")
    check_error(embedding_net(), lora(2, 1, ["tokens.weight"]), "tokens.weight.*an embedding")


def embedding_net() -> Graph:
    net = NetBuilder("embedding")
    tokens = net.g.input("tokens", TensorType(I64, (4,)))
    target = net.g.input("target", TensorType(I64, (4,)))
    rows = net.g.take(net.weight("tokens.weight", 9, 5), tokens, axis=0)
    net.g.output("loss", net.g.cross_entropy(rows, target))
    return net.g.graph


@pytest.mark.parametrize(
    "value",
    [
        "{ lora = 8 }",
        "{ lora = 8, alpha = 0 }",
        "{ lora = 8, alpha = -1 }",
        "{ lora = 0, alpha = 1 }",
        "{ lora = true, alpha = 1 }",
        "{ lora = 2.5, alpha = 1 }",
        "{ lora = 8, alpha = inf }",
        "{ lora = 8, alpha = nan }",
        "{ lora = 8, alpha = 1, beta = 2 }",
        "{ lora = 8, alpha = 1, dora = 1 }",
    ],
)
def test_error_names_an_invalid_table(tmp_path: Path, value: str) -> None:
    path = tmp_path / "s.toml"
    path.write_text(f'[params]\n"fc.weight" = {value}\n')
    with pytest.raises(SchemeError, match=r"fc.weight.*lora = 8, alpha = 16"):
        load_scheme(path)
