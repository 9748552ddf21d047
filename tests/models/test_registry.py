"""Names of benchmark models: strict parsing, with errors that show valid names."""

import re

import pytest

from pockengine.errors import ImportModelError
from pockengine.models.registry import FAMILIES, parse_model


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("mobilenet_v2-0.35-96", (3, 96, 96)),
        ("mobilenet_v2-1-224", (3, 224, 224)),
        ("resnet18-32", (3, 32, 32)),
        ("resnet50-224", (3, 224, 224)),
        ("resnet20-32", (3, 32, 32)),
        ("mcunet-128", (3, 128, 128)),
        ("cnn-8", (1, 8, 8)),
        ("vit_tiny-224", (3, 224, 224)),
        ("distilbert-128", (128,)),
        ("llama-15m-256", (256,)),
    ],
)
def test_names_give_the_input_shape_and_round_trip(name: str, shape: tuple[int, ...]) -> None:
    model = parse_model(name)

    assert model.input_shape == shape
    assert str(model) == name


def test_equal_models_have_one_canonical_name() -> None:
    assert str(parse_model("mobilenet_v2-1.0-96")) == "mobilenet_v2-1-96"


def test_text_models_need_tokens() -> None:
    assert parse_model("distilbert-128").input_name == "input_ids"
    with pytest.raises(ImportModelError, match="llama-15m-256 takes tokens"):
        _ = parse_model("llama-15m-256").resolution


def test_loss_is_added_unless_the_model_returns_its_own() -> None:
    assert parse_model("vit_tiny-224").loss == "cross_entropy"
    assert parse_model("llama-15m-256").loss is None


def test_every_family_is_reachable_by_name() -> None:
    for family, known in FAMILIES.items():
        middle = "-0.5" if known.has_width else ""
        assert parse_model(f"{family}{middle}-64").family == family


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "mobilenet-0.35-96",
            "unknown model 'mobilenet' in 'mobilenet-0.35-96'; known: bert_base, cnn,",
        ),
        ("", "unknown model ''; known: bert_base,"),
        ("mobilenet_v2", "must read mobilenet_v2-width-resolution"),
        ("mobilenet_v2-96", "must read mobilenet_v2-width-resolution, for example"),
        ("mobilenet_v2-0.35-96-2", "must read mobilenet_v2-width-resolution"),
        ("resnet18-0.5-32", "must read resnet18-resolution, for example resnet18-64"),
        ("mobilenet_v2-wide-96", "width 'wide' in 'mobilenet_v2-wide-96' is not a number"),
        ("mobilenet_v2-0-96", "width '0' in 'mobilenet_v2-0-96' is not a number between 0 and 10"),
        ("mobilenet_v2-nan-96", "width 'nan'"),
        ("mobilenet_v2-1e3-96", "width '1e3'"),
        ("resnet18-large", "resolution 'large' in 'resnet18-large' is not a positive whole"),
        ("resnet18-032", "resolution '032'"),
        ("resnet18--32", "must read resnet18-resolution"),
        ("resnet18-8", "the smallest resolution of resnet18 is 32"),
        ("vit_tiny-40", "a resolution of vit_tiny is a multiple of 16"),
        ("llama-15m-512", "the largest length of llama-15m is 256"),
        ("llama-15m", "must read llama-15m-length, for example llama-15m-64"),
        ("llama-7b-64", "unknown model 'llama'"),
    ],
)
def test_errors_for_wrong_names_show_the_valid_form(name: str, message: str) -> None:
    with pytest.raises(ImportModelError, match=re.escape(message)):
        parse_model(name)
