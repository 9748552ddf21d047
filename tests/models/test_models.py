"""The PyTorch models: sizes, names and behavior of the published originals."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from pockengine.compiler.sparse.families import recognize
from pockengine.errors import ImportModelError
from pockengine.models.language import Llama
from pockengine.models.mcunet import MCUNet
from pockengine.models.mobilenet_v2 import MobileNetV2
from pockengine.models.pretrained import load_cifar_resnet, load_int8
from pockengine.models.registry import FAMILIES, parse_model
from pockengine.models.resnet import CifarResNet, resnet18, resnet50
from pockengine.models.specs import MCUNET_5FPS, round_channels


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        # torchvision's own counts
        ("mobilenet_v2-1-224", 3_504_872),
        ("mobilenet_v3_small-224", 2_542_856),
        ("resnet18-224", 11_689_512),
        ("resnet50-224", 25_557_032),
        # the paper's table 6 for n = 3, with batch norms and the linear layer's bias
        ("resnet20-32", 269_722),
        # transformers' count for DistilBERT with two labels; DeiT-Ti's 5.7 M; llama2.c's own
        ("distilbert-128", 66_955_010),
        ("vit_tiny-224", 5_717_416),
        ("llama-15m-256", 15_191_712),
        ("llama-260k-512", 260_032),
    ],
)
def test_model_has_the_published_number_of_parameters(name: str, parameters: int) -> None:
    model = parse_model(name).build()

    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


@pytest.mark.parametrize("family", FAMILIES)
def test_presets_know_the_names_of_every_family(family: str) -> None:
    width = "-0.35" if FAMILIES[family].has_width else ""
    with torch.device("meta"):
        model = parse_model(f"{family}{width}-64").build()
    found = recognize([name for name, _ in model.named_parameters()])
    assert found is not None
    assert len(found.blocks) > 1
    assert found.head


def test_example_inputs_fit_the_model() -> None:
    for name, shape in {"vit_tiny-32": (2, 1000), "distilbert-9": (2, 2)}.items():
        model = parse_model(name)
        assert model.build().eval()(**model.example_inputs(2)).shape == shape


def test_causal_model_returns_the_loss_of_the_next_token() -> None:
    torch.manual_seed(0)
    model = Llama(vocab_size=11, num_hidden_layers=1)
    tokens = torch.randint(11, (2, 5))

    outputs = model(tokens)

    expected = nn.functional.cross_entropy(
        outputs["logits"][:, :-1].flatten(0, 1), tokens[:, 1:].flatten()
    )
    torch.testing.assert_close(outputs["loss"], expected)


def test_mobilenet_has_the_names_of_torchvision() -> None:
    state = MobileNetV2().state_dict()

    shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
    assert shapes["features.0.0.weight"] == (32, 3, 3, 3)
    assert shapes["features.0.1.running_var"] == (32,)
    assert shapes["features.1.conv.0.0.weight"] == (32, 1, 3, 3)
    assert shapes["features.1.conv.1.weight"] == (16, 32, 1, 1)
    assert shapes["features.2.conv.1.0.weight"] == (96, 1, 3, 3)
    assert shapes["features.17.conv.3.bias"] == (320,)
    assert shapes["features.18.0.weight"] == (1280, 320, 1, 1)
    assert shapes["classifier.1.weight"] == (1000, 1280)
    assert len(shapes) == 314


def test_mobilenet_head_keeps_its_name_with_dropout() -> None:
    model = MobileNetV2(0.35, 10, dropout=0.2)

    assert isinstance(model.classifier[0], nn.Dropout)
    assert set(model.state_dict()) == set(MobileNetV2(0.35, 10).state_dict())


def test_resnets_have_the_names_of_torchvision() -> None:
    assert len(resnet18().state_dict()) == 122
    state = resnet50().state_dict()
    assert len(state) == 320
    assert tuple(state["layer1.0.downsample.0.weight"].shape) == (256, 64, 1, 1)
    assert tuple(state["layer4.2.conv3.weight"].shape) == (2048, 512, 1, 1)
    assert tuple(state["fc.weight"].shape) == (1000, 2048)


@pytest.mark.parametrize(
    ("channels", "expected"), [(32 * 0.35, 16), (24 * 0.35, 8), (64 * 0.35, 24), (96, 96), (3, 8)]
)
def test_channels_round_to_eight_without_losing_a_tenth(channels: float, expected: int) -> None:
    assert round_channels(channels) == expected


@pytest.mark.parametrize("resolution", [32, 47, 96])
def test_convolutional_nets_take_any_resolution(resolution: int) -> None:
    for model in (MobileNetV2(0.35, 5), MCUNet(MCUNET_5FPS, 5), CifarResNet(8, 5)):
        assert model.eval()(torch.randn(2, 3, resolution, resolution)).shape == (2, 5)


def test_equal_seeds_build_equal_models() -> None:
    torch.manual_seed(3)
    first = parse_model("mobilenet_v2-0.35-96").build(10).state_dict()
    torch.manual_seed(3)
    second = parse_model("mobilenet_v2-0.35-96").build(10).state_dict()

    assert all(torch.equal(first[name], second[name]) for name in first)


def test_cifar_depth_must_belong_to_the_family() -> None:
    with pytest.raises(ImportModelError, match=r"6 n \+ 2 layers \(20, 32, 44, 56\), not 18"):
        CifarResNet(18)


def test_cifar_weights_load_by_name(tmp_path: Path) -> None:
    source = CifarResNet(8).eval()
    arrays = {
        name: tensor.numpy()
        for name, tensor in source.state_dict().items()
        if not name.endswith("num_batches_tracked")
    }
    np.savez(tmp_path / "resnet8-0000.npz", **arrays)

    loaded = load_cifar_resnet(tmp_path / "resnet8-0000.npz")

    x = torch.randn(2, 3, 32, 32)
    assert torch.equal(loaded(x), source(x))


def test_error_names_cifar_weights_of_another_model(tmp_path: Path) -> None:
    np.savez(tmp_path / "resnet8-0000.npz", conv9=np.zeros(3, np.float32))

    with pytest.raises(ImportModelError, match=r"do not fit ResNet-8: conv9, conv1\.weight"):
        load_cifar_resnet(tmp_path / "resnet8-0000.npz")


@pytest.mark.parametrize("load", [load_int8, load_cifar_resnet])
def test_unknown_file_names_are_refused(load: Callable[[Path], object]) -> None:
    with pytest.raises(ImportModelError, match=r"squeezenet\.npz"):
        load(Path("squeezenet.npz"))


def test_int8_weights_load_as_dequantized_floats(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays, layers = {}, []
    for name, module in MCUNet(norm=False).named_modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            layer = name.removesuffix(".conv")
            shape = (*module.weight.shape, 1, 1)[:4]
            arrays[f"{layer}.weight"] = rng.integers(-127, 127, shape, dtype=np.int8)
            arrays[f"{layer}.bias"] = rng.integers(-999, 999, shape[0], dtype=np.int32)
            arrays[f"{layer}.w_scales"] = np.full(shape[0], 0.5, np.float32)
            scales = {"x_scale": 0.25, "y_scale": 0.5, "y_zero": -128}
            layers.append({"name": layer, **scales})
    meta = np.frombuffer(json.dumps(layers).encode(), np.uint8)
    np.savez(tmp_path / "mcunet-5fps.npz", meta_json=meta, **arrays)

    model = load_int8(tmp_path / "mcunet-5fps.npz")

    conv = model.first_conv
    assert np.array_equal(conv.conv.weight.detach(), arrays["first_conv.weight"] * 0.5)
    assert np.array_equal(conv.conv.bias.detach(), arrays["first_conv.bias"] * 0.125)
    assert (conv.act.min_val, conv.act.max_val) == (0, 127.5)
    assert model.classifier.weight.shape == (1000, 160)
