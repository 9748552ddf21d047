"""Scheme files and presets."""

from pathlib import Path

import pytest

from pockengine.compiler.compile import find_scheme
from pockengine.compiler.sparse import Scheme, load_scheme, preset
from pockengine.compiler.sparse.presets import blocks_of
from pockengine.compiler.sparse.scheme import FROZEN, FULL, Choice
from pockengine.errors import SchemeError
from pockengine.tests.compiler.small_nets import residual_net

FILE = """
default = "frozen"

[params]
"*.bias" = "full"
"a.1.bias" = "frozen"
"c.0.weight" = 0.25
"b.0.weight" = [2, 5]
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return path


def test_file_names_what_trains_and_the_last_match_wins(tmp_path: Path) -> None:
    trained = load_scheme(write(tmp_path, FILE)).resolve(residual_net())
    assert trained == {
        "b.0.weight": range(2, 5),
        "b.1.bias": None,
        "c.0.weight": range(2),
        "c.1.bias": None,
        "fc.bias": None,
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[params]\n"c.0.wieght" = "full"', r"'c.0.wieght' matches no parameter.*c\.0\.weight"),
        ('[params]\n"c.0.weight" = 1.5', "a share between 0 and 1"),
        ('[params]\n"c.0.weight" = true', "a share between 0 and 1"),
        ('[params]\n"c.0.weight" = [5, 2]', r"\[start, stop\]"),
        ('[params]\n"c.0.weight" = [0, 99]', "has 8 channels"),
        ('[params]\n"c.1.bias" = 0.5', "has no channels to slice in batch_norm"),
        ('[parameters]\n"c.0.weight" = 1', r"unknown \['parameters'\]"),
        ("default = 7", "default = 7"),
        ("default = ", "mine.toml"),
        ('default = "frozen"', "freezes every parameter"),
    ],
)
def test_wrong_files_say_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SchemeError, match=message):
        load_scheme(write(tmp_path, text)).resolve(residual_net())


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SchemeError, match=r"nowhere\.toml"):
        find_scheme(str(tmp_path / "nowhere.toml"), residual_net())


def test_unknown_preset_lists_the_presets() -> None:
    with pytest.raises(SchemeError, match="presets: full, bias-only"):
        find_scheme("fastest", residual_net())


def test_blocks_follow_the_forward_pass() -> None:
    heads = [params[0] for params in blocks_of(residual_net())]
    assert heads == [
        "a.0.weight",
        "a.1.weight",
        "b.0.weight",
        "b.1.weight",
        "c.0.weight",
        "c.1.weight",
        "fc.weight",
    ]


@pytest.mark.parametrize(
    ("name", "trained"),
    [
        ("head-only", {"fc.weight", "fc.bias"}),
        ("last-1-blocks", {"fc.weight", "fc.bias", "c.1.weight", "c.1.bias"}),
        ("bias-only", {"a.1.bias", "b.1.bias", "c.1.bias", "fc.weight", "fc.bias"}),
    ],
)
def test_presets_train_what_they_say(name: str, trained: set[str]) -> None:
    graph = residual_net()
    assert set(preset(name, graph).resolve(graph)) == trained


def test_full_trains_every_weight_and_no_state() -> None:
    graph = residual_net()
    trained = preset("full", graph).resolve(graph)
    assert set(trained) == {name for name in graph.params if "running" not in name}


def test_a_share_rounds_to_at_least_one_channel() -> None:
    scheme = Scheme("tiny", (("c.0.weight", Choice("share", share=0.01)),), FROZEN)
    assert scheme.resolve(residual_net()) == {"c.0.weight": range(1)}
    whole = Scheme("whole", (("c.0.weight", Choice("range", channels=(0, 8))),))
    assert whole.resolve(residual_net()) == {"c.0.weight": None}
    assert str(FULL) == "full"
