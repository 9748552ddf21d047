"""Options that commands share: an optimiser by name with its numbers, shapes of inputs."""

from typing import Any

import click
import pytest

from pockengine.cli.optimizers import read_optimizer
from pockengine.cli.options import shape
from pockengine.compiler.optim import AdamW, Lion, Muon, Sgd


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("sgd", Sgd()),
        ("SGD:momentum=0.9,nesterov=true", Sgd(momentum=0.9, nesterov=True)),
        (
            "muon:ns_steps=3,adjust_lr_fn=match_rms_adamw,ns_coefficients=3/-4/2",
            Muon(ns_steps=3, adjust_lr_fn="match_rms_adamw", ns_coefficients=(3.0, -4.0, 2.0)),
        ),
        ("adamw:betas=0.9/0.98,weight_decay=0.1", AdamW(betas=(0.9, 0.98), weight_decay=0.1)),
        ("lion:", Lion()),
    ],
)
def test_an_optimiser_is_read_with_its_numbers(text: str, meant: Any) -> None:
    assert read_optimizer(text) == meant


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("adamx", "'adamx' is none of adadelta"),
        ("sgd:speed=1", "sgd has no 'speed'; it has momentum"),
        ("sgd:momentum", "must read momentum=0"),
        ("sgd:nesterov=1", "must read nesterov=false"),
        ("adam:betas=0.9", "must read betas=0.9/0.999"),
        ("muon:ns_steps=2.5", "must read ns_steps=5"),
        ("muon:others=adam", "muon has no 'others'"),
    ],
)
def test_what_is_wrong_is_named(text: str, message: str) -> None:
    with pytest.raises(click.BadParameter, match=message):
        read_optimizer(text)


def test_a_shape_is_read() -> None:
    assert shape("a=b=1x3x8") == ("a=b", (1, 3, 8))
    for text in ("x", "x=", "=3", "x=3x0", "x=-1"):
        with pytest.raises(click.BadParameter, match="is no input with its sizes"):
            shape(text)
