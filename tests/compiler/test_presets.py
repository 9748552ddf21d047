"""Presets, by the parameter names of model families."""

import numpy as np
import pytest

from pockengine.compiler.ir import Builder, Graph
from pockengine.compiler.sparse import preset
from pockengine.compiler.sparse.families import SchemeFamily, known_families, recognize
from pockengine.compiler.sparse.presets import blocks_of
from pockengine.errors import SchemeError

NORM = ("weight", "bias")


def reader(names: list[str]) -> Graph:
    """A graph that reads parameters with these names in order."""
    g = Builder(Graph("names"))
    total = g.scalar(0.0)
    for name in names:
        total = g.add(total, g.param(name, np.ones((), np.float32)))
    g.output("loss", total)
    return g.graph


def model(blocks: int, block: str, parts: list[str], before: list[str], after: list[str]) -> Graph:
    inside = [f"{block.replace('#', str(n))}.{part}" for n in range(blocks) for part in parts]
    return reader([*before, *inside, *after])


def both(*modules: str) -> list[str]:
    return [f"{module}.{kind}" for module in modules for kind in NORM]


MOBILENET = model(
    10,
    "features.#",
    ["conv.0.0.weight", *both("conv.0.1"), "conv.1.0.weight", *both("conv.1.1"), "conv.2.weight"],
    ["features.stem.0.weight"],
    ["features.18.0.weight", *both("features.18.1", "classifier.1")],
)
RESNET = model(
    5, "layer3.#", ["conv1.weight", *both("bn1"), "conv2.weight"], ["conv1.weight"], both("fc")
)
BERT = model(
    12,
    "bert.encoder.layer.#",
    both(
        *(f"attention.self.{part}" for part in ("query", "key", "value")),
        *("attention.output.dense", "attention.output.LayerNorm"),
        *("intermediate.dense", "output.dense", "output.LayerNorm"),
    ),
    ["bert.embeddings.word_embeddings.weight"],
    both("classifier"),
)
LLAMA = model(
    6,
    "model.layers.#",
    [
        "input_layernorm.weight",
        *(f"self_attn.{part}_proj.weight" for part in "qkvo"),
        "post_attention_layernorm.weight",
        *(f"mlp.{part}_proj.weight" for part in ("gate", "up", "down")),
    ],
    ["model.embed_tokens.weight"],
    ["model.norm.weight"],
)
GPT2 = model(
    4,
    "transformer.h.#",
    both("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"),
    ["transformer.wte.weight", "transformer.wpe.weight"],
    both("transformer.ln_f"),
)


def trained(name: str, graph: Graph) -> list[str]:
    return list(preset(name, graph).resolve(graph))


def test_mobilenet_trains_first_pointwise_convolutions_and_biases_of_last_blocks() -> None:
    last = range(6, 10)
    assert set(trained("sparse", MOBILENET)) == {
        *(f"features.{n}.conv.0.0.weight" for n in last),
        *(f"features.{n}.conv.{k}.1.bias" for n in last for k in (0, 1)),
        "features.18.1.bias",
        *both("classifier.1"),
    }


def test_resnet_trains_the_first_convolution_of_last_blocks() -> None:
    assert trained("sparse", RESNET) == [
        *("layer3.3.conv1.weight", "layer3.3.bn1.bias"),
        *("layer3.4.conv1.weight", "layer3.4.bn1.bias"),
        *both("fc"),
    ]


def test_bert_trains_biases_of_half_and_weights_of_a_third_of_its_blocks() -> None:
    names = trained("sparse", BERT)
    weights = {name for name in names if name.endswith("weight")}
    assert weights == {
        "classifier.weight",
        *(f"bert.encoder.layer.{n}.intermediate.dense.weight" for n in range(8, 12)),
        *(f"bert.encoder.layer.{n}.attention.output.dense.weight" for n in range(8, 12)),
        *(
            f"bert.encoder.layer.{n}.attention.self.{part}.weight"
            for n in range(8, 12)
            for part in ("query", "key", "value")
        ),
    }
    biases = [name for name in names if name.endswith("bias") and "encoder" in name]
    assert len(biases) == 6 * 8
    assert biases[0] == "bert.encoder.layer.6.attention.self.query.bias"


def test_llama_trains_norms_instead_of_biases() -> None:
    assert "model.layers.3.input_layernorm.weight" in trained("sparse", LLAMA)
    assert "model.layers.2.input_layernorm.weight" not in trained("sparse", LLAMA)
    assert "model.layers.4.mlp.gate_proj.weight" in trained("sparse", LLAMA)
    assert "model.layers.4.mlp.down_proj.weight" not in trained("sparse", LLAMA)


def test_sparse_block_range_trains_its_weights_and_later_norms() -> None:
    names = trained("sparse-1-2", LLAMA)
    weights = [name for name in names if "_proj" in name]
    assert {name.split(".")[2] for name in weights} == {"1", "2"}
    assert "model.layers.1.self_attn.q_proj.weight" in weights
    assert "model.layers.1.mlp.down_proj.weight" not in weights
    norms = [name for name in names if "input_layernorm" in name]
    assert [name.split(".")[2] for name in norms] == ["1", "2", "3", "4", "5"]
    for wrong in ("sparse-2-1", "sparse-0-6"):
        with pytest.raises(SchemeError, match="has blocks 0 to 5"):
            trained(wrong, LLAMA)
    assert len(trained("bias-only", LLAMA)) == 2 * 6 + 1
    assert trained("head-only", LLAMA) == ["model.norm.weight"]


def test_gpt2_trains_attention_and_the_first_linear_layer_of_its_last_blocks() -> None:
    names = trained("sparse", GPT2)
    assert [name for name in names if ".c_" in name and name.endswith("weight")] == [
        f"transformer.h.{n}.{part}.weight"
        for n in (2, 3)
        for part in ("attn.c_attn", "attn.c_proj", "mlp.c_fc")
    ]


def test_family_blocks_are_found_at_any_depth_before_the_head() -> None:
    blocks = blocks_of(BERT)
    assert [block[0].rpartition(".attention")[0] for block in blocks[1:-1]] == [
        f"bert.encoder.layer.{n}" for n in range(12)
    ]
    assert blocks[-1] == both("classifier")
    assert trained("last-1-blocks", BERT) == [*blocks[-2], *blocks[-1]]


@pytest.mark.parametrize("family", known_families(), ids=lambda family: family.name)
def test_every_family_is_found_by_its_own_names(family: SchemeFamily) -> None:
    parts = [pattern.replace("*.", "x.").replace("?", "q") for pattern in family.weights]
    names = [
        f"net.{family.block.replace('#', str(n))}.{part.replace('*', 'x')}"
        for n in range(3)
        for part in parts
    ]
    found = recognize(names)
    assert found is not None
    assert len(found.blocks) == 3
    assert found.family.block == family.block


def test_error_for_an_unknown_family_lists_names_and_a_fix() -> None:
    graph = reader(["stem.0.weight", "mixer.0.alpha", "mixer.1.alpha"])
    message = r"called stem\.#\.weight, mixer\.#\.alpha; known are .*llama.*scheme file"
    with pytest.raises(SchemeError, match=message):
        preset("sparse", graph)
