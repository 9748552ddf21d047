"""Scheme files and presets."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pockengine.compiler.compile import find_scheme
from pockengine.compiler.ir import Builder, Graph
from pockengine.compiler.sparse import Scheme, load_scheme, preset, save_scheme
from pockengine.compiler.sparse.channels import CRITERIA
from pockengine.compiler.sparse.presets import blocks_of
from pockengine.compiler.sparse.scheme import FROZEN, FULL, ParamChoice
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


def test_last_matching_rule_wins(tmp_path: Path) -> None:
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
        ('[params]\n"c.0.weight" = [0, 99]', r"has 8 channels; \[0, 99\] is outside"),
        ('[params]\n"c.0.weight" = { channels = [1, 8] }', r"\[1, 8\] } is outside"),
        ('[params]\n"c.0.weight" = { channels = [1, 1] }', r"\{ channels = \[1, 5, 7\] \}"),
        ('[params]\n"c.0.weight" = { channels = [-1] }', r"\{ channels = \[1, 5, 7\] \}"),
        ('[params]\n"c.0.weight" = { channels = [0.5] }', r"\{ channels = \[1, 5, 7\] \}"),
        ('[params]\n"c.0.weight" = { channels = [] }', r"\{ channels = \[1, 5, 7\] \}"),
        ('[params]\n"c.0.weight" = { share = 0.5, by = "size" }', "leading | magnitude"),
        ('[params]\n"c.0.weight" = { share = 0.5, by = [1] }', "leading | magnitude"),
        ('[params]\n"c.0.weight" = { share = 0.5, seed = 1 }', "a `seed` with random"),
        ('[params]\n"c.0.weight" = { share = 0.5, rank = 1 }', "leading | magnitude"),
        ('[params]\n"c.0.weight" = { by = "magnitude" }', "leading | magnitude"),
        ('[params]\n"c.1.bias" = 0.5', "has no channels to slice in batch_norm"),
        ('[parameters]\n"c.0.weight" = 1', r"unknown \['parameters'\]"),
        ("default = 7", "default = 7"),
        ("default = ", "mine.toml"),
        ('default = "frozen"', "freezes every parameter"),
    ],
)
def test_errors_explain_invalid_files(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SchemeError, match=message):
        load_scheme(write(tmp_path, text)).resolve(residual_net())


def test_error_names_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(SchemeError, match=r"nowhere\.toml"):
        find_scheme(str(tmp_path / "nowhere.toml"), residual_net())


def test_unknown_preset_lists_the_presets() -> None:
    with pytest.raises(SchemeError, match="presets: full, bias-only"):
        find_scheme("fastest", residual_net())


def test_blocks_follow_the_forward_pass() -> None:
    heads = [params[0] for params in blocks_of(residual_net())]
    assert heads == ["a.0.weight", "b.0.weight", "c.0.weight", "fc.weight"]


@pytest.mark.parametrize(
    ("name", "trained"),
    [
        ("head-only", {"fc.weight", "fc.bias"}),
        ("last-1-blocks", {"fc.weight", "fc.bias", "c.0.weight", "c.1.weight", "c.1.bias"}),
        ("bias-only", {"a.1.bias", "b.1.bias", "c.1.bias", "fc.weight", "fc.bias"}),
    ],
)
def test_presets_train_their_params(name: str, trained: set[str]) -> None:
    graph = residual_net()
    assert set(preset(name, graph).resolve(graph)) == trained


def test_full_trains_every_weight_and_no_state() -> None:
    graph = residual_net()
    trained = preset("full", graph).resolve(graph)
    assert set(trained) == {name for name in graph.params if "running" not in name}


def test_channel_share_rounds_to_at_least_one_channel() -> None:
    scheme = Scheme("tiny", (("c.0.weight", ParamChoice("share", share=0.01)),), FROZEN)
    assert scheme.resolve(residual_net()) == {"c.0.weight": range(1)}
    whole = Scheme("whole", (("c.0.weight", ParamChoice("range", channels=(0, 8))),))
    assert whole.resolve(residual_net()) == {"c.0.weight": None}
    assert str(FULL) == "full"


def norms_graph() -> Graph:
    """Build a linear weight with the row norms 3, 1, 4, 1, 5, 9, 2, 6."""
    g = Builder(Graph("norms"))
    rows = np.array([3, 1, 4, 1, 5, 9, 2, 6], np.float32)
    x = g.constant(np.ones((1, 8), np.float32))
    w = g.param("w", np.outer(rows, [0.6, -0.8]).astype(np.float32))
    g.output("loss", g.reduce_mean(g.matmul(x, w), axes=(0, 1)))
    return g.graph


def resolved(choice: ParamChoice) -> Sequence[int] | None:
    return Scheme("one", (("w", choice),)).resolve(norms_graph())["w"]


def test_magnitude_selects_the_channels_of_largest_norm() -> None:
    assert resolved(ParamChoice("share", share=0.5, by="magnitude")) == (2, 4, 5, 7)
    assert resolved(ParamChoice("share", share=0.25, by="magnitude")) == (5, 7)
    assert resolved(ParamChoice("share", share=0.125, by="magnitude")) == range(5, 6)


def test_error_for_a_criterion_that_needs_data_names_the_command() -> None:
    with pytest.raises(SchemeError, match=r"by 'fisher' are not chosen from weights.*selection"):
        resolved(ParamChoice("share", share=0.5, by="fisher"))


def test_random_channels_differ_between_weights_of_equal_width() -> None:
    choice = ParamChoice("share", share=0.5, by="random")
    trained = Scheme("random", (("b.0.weight", choice), ("c.0.weight", choice))).resolve(
        residual_net()
    )
    assert trained["b.0.weight"] != trained["c.0.weight"]


def test_random_channels_depend_on_the_seed() -> None:
    drawn = [
        resolved(ParamChoice("share", share=0.5, by="random", seed=seed)) for seed in range(20)
    ]
    assert drawn[3] == resolved(ParamChoice("share", share=0.5, by="random", seed=3))
    assert len(set(drawn)) > 10
    assert {index for channels in drawn for index in channels or ()} == set(range(8))


def test_adjacent_channels_become_a_range_and_all_become_none() -> None:
    assert resolved(ParamChoice("channels", channels=(3, 4, 5))) == range(3, 6)
    assert resolved(ParamChoice("channels", channels=tuple(range(8)))) is None


SHARES = st.floats(0.001, 0.999)
CHOICES = st.one_of(
    st.sampled_from([FROZEN, FULL]),
    st.builds(lambda share: ParamChoice("share", share=share), SHARES),
    st.builds(
        lambda share, by, seed: ParamChoice(
            "share", share=share, by=by, seed=seed * (by == "random")
        ),
        SHARES,
        st.sampled_from(CRITERIA),
        st.integers(0, 99),
    ),
    st.builds(
        lambda start, size: ParamChoice("range", channels=(start, start + size)),
        st.integers(0, 9),
        st.integers(1, 9),
    ),
    st.builds(
        lambda found: ParamChoice("channels", channels=tuple(sorted(found))),
        st.sets(st.integers(0, 500), min_size=1),
    ),
)


@given(rules=st.dictionaries(st.text(), CHOICES, max_size=5), default=CHOICES)
def test_saved_schemes_round_trip(
    rules: dict[str, ParamChoice], default: ParamChoice, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("scheme") / "found.toml"
    scheme = Scheme("found", tuple(rules.items()), default)
    save_scheme(scheme, path, "searched under 250 KB\nin two lines")
    assert load_scheme(path) == scheme
    assert path.read_text().startswith("# searched under 250 KB\n# in two lines\n")
    assert [file.name for file in path.parent.iterdir()] == ["found.toml"]


def test_last_rule_of_a_pattern_is_saved(tmp_path: Path) -> None:
    path = tmp_path / "twice.toml"
    save_scheme(Scheme("twice", (("a", FULL), ("*", FROZEN), ("a", FROZEN))), path)
    assert load_scheme(path).rules == (("*", FROZEN), ("a", FROZEN))


def test_failed_save_preserves_the_old_scheme(tmp_path: Path) -> None:
    path = tmp_path / "kept.toml"
    save_scheme(Scheme("kept", (), FULL), path)
    with pytest.raises(SchemeError, match="'odd' cannot be written"):
        save_scheme(Scheme("kept", (("a", ParamChoice("odd")),)), path)
    with pytest.raises(SchemeError, match="nowhere"):
        save_scheme(Scheme("kept", ()), tmp_path / "nowhere" / "kept.toml")
    assert load_scheme(path).default == FULL
    assert [file.name for file in tmp_path.iterdir()] == ["kept.toml"]
