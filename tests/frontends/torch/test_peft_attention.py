"""LoRA on nn.MultiheadAttention compared with peft, which adapts its output projection too."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.numpy import load_file
from torch import nn
from torch.nn import functional

import pockengine
from pockengine.compiled import Compiled
from pockengine.errors import AdapterError
from pockengine.frontends.peft.files import CONFIG, WEIGHTS

RATE, STEPS = 0.3, 5


class Reader(nn.Module):
    """Self-attention, then cross-attention, which reads its packed weight in slices."""

    def __init__(self) -> None:
        super().__init__()
        self.own = nn.MultiheadAttention(8, 2, batch_first=True)
        self.other = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        x = x + self.own(x, x, x, need_weights=False)[0]
        x = x + self.other(x, memory, memory)[0]
        return self.head(x.mean(1))


def model() -> Reader:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    return Reader()


def batch() -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    x, memory = torch.randn(4, 5, 8), torch.randn(4, 3, 8)
    return {"x": x, "memory": memory, "target": torch.randint(0, 3, (4,))}


ARRAYS = {name: tensor.numpy() for name, tensor in batch().items()}
INPUTS = {name: array for name, array in ARRAYS.items() if name != "target"}


def compiled_by(scheme: str | Path) -> Compiled:
    examples = tuple(value for name, value in batch().items() if name != "target")
    return pockengine.compile(model(), examples, loss="cross_entropy", scheme=scheme)


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return compiled_by("lora-2")


def train(network: nn.Module) -> list[float]:
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimizer, data, losses = torch.optim.SGD(trained, RATE), batch(), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = functional.cross_entropy(network(data["x"], data["memory"]), data["target"])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_peft_loads_our_adapters_trains_equally_and_exports_back(
    compiled: Compiled, tmp_path: Path
) -> None:
    with compiled.session() as session:
        compiled.save_adapters(session, tmp_path / "start")
        ours = [float(session.train_step(ARRAYS, lr=RATE)["loss"]) for _ in range(STEPS)]
        logits = session.predict(INPUTS)["output"]
        merged = compiled.state_dict(session)

    theirs = PeftModel.from_pretrained(model(), tmp_path / "start", is_trainable=True)
    losses = train(theirs)
    np.testing.assert_allclose(ours, losses, rtol=1e-4)
    assert losses[-1] < 0.9 * losses[0]

    theirs.save_pretrained(tmp_path / "theirs")
    with compiled.session() as session:
        compiled.load_adapters(session, tmp_path / "theirs")
        again = session.predict(INPUTS)["output"]
    np.testing.assert_allclose(again, logits, rtol=1e-4, atol=1e-5)
    plain = theirs.merge_and_unload().state_dict()
    for name, tensor in merged.items():
        torch.testing.assert_close(tensor, plain[name], rtol=1e-4, atol=1e-5)


def test_our_files_have_pefts_names_and_shapes(compiled: Compiled, tmp_path: Path) -> None:
    config = LoraConfig(
        r=2, lora_alpha=4, target_modules=["own", "other"], modules_to_save=["head"]
    )
    get_peft_model(model(), config).save_pretrained(tmp_path / "theirs")
    with compiled.session() as session:
        compiled.save_adapters(session, tmp_path / "ours")

    ours, theirs = (load_file(tmp_path / side / WEIGHTS) for side in ("ours", "theirs"))
    assert {name: array.shape for name, array in ours.items()} == {
        name: array.shape for name, array in theirs.items()
    }
    written = json.loads((tmp_path / "ours" / CONFIG).read_text())
    assert written["target_modules"] == ["other", "own"]


def test_adapter_of_the_output_projection_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "scheme.toml").write_text(
        '[params]\n"own.*weight" = { lora = 2, alpha = 4 }\n"head.*" = "full"\n'
    )
    compiled = compiled_by(tmp_path / "scheme.toml")

    with (
        compiled.session() as session,
        pytest.raises(AdapterError, match=r"own\.out_proj\.weight: PEFT adds .* twice"),
    ):
        compiled.save_adapters(session, tmp_path / "adapter")


def test_trained_adapter_of_the_output_projection_is_not_read(
    compiled: Compiled, tmp_path: Path
) -> None:
    config = LoraConfig(
        r=2, lora_alpha=4, target_modules=["own", "other"], modules_to_save=["head"]
    )
    theirs = get_peft_model(model(), config)
    train(theirs)
    theirs.save_pretrained(tmp_path)

    with (
        compiled.session() as session,
        pytest.raises(AdapterError, match="of its out_proj is trained"),
    ):
        compiled.load_adapters(session, tmp_path)


def test_adapter_without_its_line_in_the_scheme_is_reported(
    compiled: Compiled, tmp_path: Path
) -> None:
    with compiled.session() as session:
        compiled.save_adapters(session, tmp_path / "adapter")
    (tmp_path / "scheme.toml").write_text(
        '[params]\n"own.in_*weight" = { lora = 2, alpha = 4 }\n"head.*" = "full"\n'
    )
    other = compiled_by(tmp_path / "scheme.toml")

    with (
        other.session() as session,
        pytest.raises(AdapterError, match=r'"other\.in_proj_weight" = \{ lora = 2, alpha = 4'),
    ):
        other.load_adapters(session, tmp_path / "adapter")
