"""LoRA compared with peft: each loads the other's folders, and their steps are equal."""

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from peft import LoraConfig, PeftModel, PrefixTuningConfig, get_peft_model
from peft.optimizers import create_loraplus_optimizer
from safetensors.numpy import load_file
from torch import nn
from torch.nn import functional
from transformers import (
    DistilBertConfig,
    DistilBertForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
)

import pockengine
from pockengine.backends.session import Session
from pockengine.compiled import Compiled
from pockengine.compiler.optim import AdamW, LoraPlus
from pockengine.errors import AdapterError
from pockengine.frontends.peft.files import CONFIG

RATE, STEPS = 0.3, 10


def language_model() -> DistilBertForSequenceClassification:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    config = DistilBertConfig(
        num_labels=3,
        dim=32,
        n_layers=2,
        n_heads=2,
        hidden_dim=64,
        vocab_size=50,
        max_position_embeddings=16,
        attn_implementation="sdpa",
    )
    return DistilBertForSequenceClassification(config).eval()


def language_batch() -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    return {"input_ids": torch.randint(0, 50, (4, 8)), "target": torch.randint(0, 3, (4,))}


def loss_of(outputs: dict[str, torch.Tensor], target: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(outputs["logits"], target)


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return by_scheme("lora-4")


def by_scheme(scheme: str) -> Compiled:
    return pockengine.compile(language_model(), language_batch(), loss=loss_of, scheme=scheme)


def arrays(batch: dict[str, torch.Tensor]) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in batch.items()}


def train_ours(session: Session, batch: dict[str, np.ndarray]) -> list[float]:
    return [float(session.train_step(batch, lr=RATE)["loss"]) for _ in range(STEPS)]


def train_theirs(
    model: nn.Module,
    batch: dict[str, torch.Tensor],
    optimizer: torch.optim.Optimizer | None = None,
) -> list[float]:
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer, losses = optimizer or torch.optim.SGD(trained, RATE), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model(input_ids=batch["input_ids"]), batch["target"])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("scheme", ["lora-4", "dora-4", "rslora-4"])
def test_peft_loads_our_adapters_trains_equally_and_exports_back(
    scheme: str, compiled: Compiled, tmp_path: Path
) -> None:
    compiled = compiled if scheme == "lora-4" else by_scheme(scheme)
    batch = language_batch()
    ids = {"input_ids": batch["input_ids"].numpy()}
    with compiled.session() as session:
        compiled.save_adapters(session, tmp_path / "start")
        ours = train_ours(session, arrays(batch))
        logits = session.predict(ids)["logits"]
        compiled.save_adapters(session, tmp_path / "end")
        merged = compiled.state_dict(session)

    theirs = PeftModel.from_pretrained(language_model(), tmp_path / "start", is_trainable=True)
    config = theirs.peft_config["default"]
    assert config.task_type == "SEQ_CLS"
    assert (config.use_dora, config.use_rslora) == (scheme == "dora-4", scheme == "rslora-4")
    losses = train_theirs(theirs.eval(), batch)
    np.testing.assert_allclose(ours, losses, rtol=1e-4)
    assert losses[-1] < 0.9 * losses[0]

    loaded = PeftModel.from_pretrained(language_model(), tmp_path / "end").eval()
    found = loaded(input_ids=batch["input_ids"]).logits.detach().numpy()
    np.testing.assert_allclose(found, logits, rtol=1e-4, atol=1e-5)
    plain = loaded.merge_and_unload().state_dict()
    assert set(merged) <= set(plain)
    for name, tensor in merged.items():
        torch.testing.assert_close(tensor, plain[name], rtol=1e-4, atol=1e-5)

    theirs.save_pretrained(tmp_path / "theirs")
    with compiled.session() as session:
        compiled.load_adapters(session, tmp_path / "theirs")
        logits = session.predict(ids)["logits"]
    found = theirs(input_ids=batch["input_ids"]).logits.detach().numpy()
    np.testing.assert_allclose(found, logits, rtol=1e-4, atol=1e-5)


def test_a_folder_holds_several_adapters_under_pefts_names(
    compiled: Compiled, tmp_path: Path
) -> None:
    batch = language_batch()
    ids = {"input_ids": batch["input_ids"].numpy()}
    with compiled.session() as session:
        compiled.save_adapters(session, tmp_path / "ours")
        train_ours(session, arrays(batch))
        compiled.save_adapters(session, tmp_path / "ours" / "second")
        logits = session.predict(ids)["logits"]
    theirs = PeftModel.from_pretrained(language_model(), tmp_path / "ours").eval()
    theirs.load_adapter(tmp_path / "ours" / "second", "second")
    theirs.set_adapter("second")
    found = theirs(input_ids=batch["input_ids"]).logits.detach().numpy()
    np.testing.assert_allclose(found, logits, rtol=1e-4, atol=1e-5)

    theirs.save_pretrained(tmp_path / "theirs", selected_adapters=["second"])
    with compiled.session() as session:
        with pytest.raises(AdapterError, match="has the adapters second; give one's folder"):
            compiled.load_adapters(session, tmp_path / "theirs")
        compiled.load_adapters(session, tmp_path / "theirs" / "second")
        np.testing.assert_allclose(session.predict(ids)["logits"], logits, rtol=1e-4, atol=1e-5)


def test_lora_plus_trains_as_in_peft(tmp_path: Path) -> None:
    batch, rate = language_batch(), 1e-3
    optimizer = LoraPlus(AdamW(weight_decay=0.0), 8.0)
    plus = pockengine.compile(
        language_model(), batch, loss=loss_of, scheme="lora-4", optimizer=optimizer
    )
    with plus.session() as session:
        plus.save_adapters(session, tmp_path / "start")
        inputs = arrays(batch)
        ours = [float(session.train_step(inputs, lr=rate)["loss"]) for _ in range(STEPS)]
    model = PeftModel.from_pretrained(language_model(), tmp_path / "start", is_trainable=True)
    theirs = create_loraplus_optimizer(model, torch.optim.AdamW, lr=rate, loraplus_lr_ratio=8.0)
    np.testing.assert_allclose(ours, train_theirs(model.eval(), batch, theirs), rtol=1e-4)


def test_our_files_have_pefts_names_and_shapes(compiled: Compiled, tmp_path: Path) -> None:
    with compiled.session() as session:
        compiled.save_adapters(session, tmp_path / "ours")
    model = PeftModel.from_pretrained(language_model(), tmp_path / "ours")
    model.save_pretrained(tmp_path / "theirs")
    weights = [
        load_file(tmp_path / side / "adapter_model.safetensors") for side in ("ours", "theirs")
    ]
    assert weights[0].keys() == weights[1].keys()
    assert "base_model.model.pre_classifier.weight" in weights[0]
    for name, array in weights[0].items():
        np.testing.assert_array_equal(array, weights[1][name])
    ours, theirs = (
        json.loads((tmp_path / side / CONFIG).read_text()) for side in ("ours", "theirs")
    )
    assert ours.keys() <= theirs.keys()
    for key in ("r", "lora_alpha", "bias", "fan_in_fan_out", "peft_type", "task_type"):
        assert ours[key] == theirs[key]


def picture_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 6, 1),
        nn.Flatten(),
        nn.Linear(6 * 16, 12),
        nn.ReLU(),
        nn.Linear(12, 3),
    )


SCHEME = """[params]
"*.bias" = "full"
"0.weight" = { lora = 2, alpha = 6 }
"2.weight" = { lora = 3, alpha = 3, seed = 5 }
"4.weight" = { lora = 2, alpha = 6 }
"6.weight" = "full"
"""


def test_convolutions_biases_and_rank_patterns(tmp_path: Path) -> None:
    (tmp_path / "scheme.toml").write_text(SCHEME)
    x, y = torch.randn(4, 3, 8, 8), torch.randint(0, 3, (4,))
    compiled = pockengine.compile(
        picture_model(), (x,), loss="cross_entropy", scheme=tmp_path / "scheme.toml"
    )
    with compiled.session() as session:
        train_ours(session, {"input": x.numpy(), "target": y.numpy()})
        logits = session.predict({"input": x.numpy()})["output"]
        compiled.save_adapters(session, tmp_path / "adapter")
        biases = compiled.state_dict(session)["0.bias"]
    config = json.loads((tmp_path / "adapter" / CONFIG).read_text())
    assert config["rank_pattern"] == {"2": 3}
    assert config["alpha_pattern"] == {"2": 3}
    assert config["bias"] == "all"
    assert config["modules_to_save"] == ["6"]
    loaded = PeftModel.from_pretrained(picture_model(), tmp_path / "adapter").eval()
    np.testing.assert_allclose(loaded(x).detach().numpy(), logits, rtol=1e-4, atol=1e-5)
    assert not torch.equal(biases, picture_model()[0].bias)

    loaded.save_pretrained(tmp_path / "theirs")
    with compiled.session() as session:
        compiled.load_adapters(session, tmp_path / "theirs")
        again = session.predict({"input": x.numpy()})["output"]
    np.testing.assert_allclose(again, logits, rtol=1e-5, atol=1e-6)


def small_decoder(tied: bool) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=20,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=tied,
    )
    return LlamaForCausalLM(config).eval()


TIED = """[params]
"model.embed_tokens.weight" = "full"
"*.q_proj.weight" = { lora = 2, alpha = 6 }
"""


def test_an_embedding_is_saved_with_the_head_that_it_is_tied_to(tmp_path: Path) -> None:
    (tmp_path / "scheme.toml").write_text(TIED)
    tokens = torch.randint(0, 20, (2, 5))
    batch = {"input_ids": tokens, "labels": tokens}
    scheme = tmp_path / "scheme.toml"
    compiled = pockengine.compile(small_decoder(tied=True), batch, optimizer="sgd", scheme=scheme)
    with compiled.session() as session:
        train_ours(session, arrays(batch))
        compiled.save_adapters(session, tmp_path / "ours")
        ours = small_decoder(tied=True)
        ours.load_state_dict(compiled.state_dict(session))
    model = PeftModel.from_pretrained(small_decoder(tied=True), tmp_path / "ours").eval()
    expected = ours(tokens).logits
    assert not torch.allclose(expected, small_decoder(tied=True)(tokens).logits, atol=0.1)
    torch.testing.assert_close(model(tokens).logits, expected, rtol=1e-4, atol=1e-5)

    model.save_pretrained(tmp_path / "theirs")
    with compiled.session() as session:
        compiled.load_adapters(session, tmp_path / "theirs")
        for name, tensor in compiled.state_dict(session).items():
            torch.testing.assert_close(tensor, ours.state_dict()[name], rtol=1e-6, atol=1e-7)
        model.base_model.model.lm_head.weight.data += 1
        model.save_pretrained(tmp_path / "apart")
        with pytest.raises(AdapterError, match=r"model.embed_tokens.weight has other numbers than"):
            compiled.load_adapters(session, tmp_path / "apart")
        of_head = LoraConfig(target_modules=["lm_head", "q_proj"], r=2, lora_alpha=6)
        get_peft_model(small_decoder(tied=True), of_head).save_pretrained(tmp_path / "head")
        with pytest.raises(AdapterError, match=r"its weight is model\.embed_tokens\.weight here"):
            compiled.load_adapters(session, tmp_path / "head")


def test_adapters_in_bf16_load(compiled: Compiled, tmp_path: Path) -> None:
    batch = language_batch()
    ids = {"input_ids": batch["input_ids"].numpy()}
    with compiled.session() as session:
        train_ours(session, arrays(batch))
        compiled.save_adapters(session, tmp_path / "ours")
    theirs = PeftModel.from_pretrained(language_model(), tmp_path / "ours").bfloat16()
    theirs.save_pretrained(tmp_path / "theirs")
    with compiled.session() as session:
        compiled.load_adapters(session, tmp_path / "theirs")
        logits = session.predict(ids)["logits"]
    model = PeftModel.from_pretrained(language_model(), tmp_path / "theirs").eval()
    found = model(input_ids=batch["input_ids"]).logits.detach().numpy()
    np.testing.assert_allclose(found, logits, rtol=1e-4, atol=1e-5)


def test_prefixes_train_as_in_peft() -> None:
    prefixes = PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)
    model = get_peft_model(small_decoder(tied=False), prefixes).eval()
    tokens = torch.randint(0, 20, (2, 5))
    batch = {"input_ids": tokens, "labels": tokens}
    reference = copy.deepcopy(model)
    optimizer = torch.optim.SGD([p for p in reference.parameters() if p.requires_grad], RATE)

    with pockengine.compile(model, batch, optimizer="sgd").session() as session:
        found = train_ours(session, arrays(batch))

    for loss in found:
        optimizer.zero_grad()
        expected = reference(**batch).loss
        expected.backward()
        optimizer.step()
        assert loss == pytest.approx(expected.item(), rel=1e-4)
