"""`sensitivity` and `search` on a decoder, and `finetune-lm` with the resulting scheme."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from pockengine.cli.main import cli
from pockengine.compiler.sparse import load_scheme
from pockengine.errors import PockEngineError
from pockengine.finetune.contributions import read_table
from pockengine.finetune.lm.subject import decoder_subject
from pockengine.tests.finetune.lm.decoders import llama, save

LENGTH, BATCH = 16, 2
ROWS = (f"--max-length={LENGTH}", f"--batch={BATCH}")
FACTS = ["a cat says miau", "a dog says wuff", "a cow says muuh", "an owl says huu"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = llama(hidden_size=16, intermediate_size=24, tie_word_embeddings=True)
    return save(tmp_path_factory.mktemp("decoder"), model)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "facts.jsonl"
    rows = [{"prompt": text[:-4], "completion": text[-4:]} for text in FACTS * 3]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


@pytest.fixture(scope="module")
def table(folder: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Measure the contributions of the last block's MLP and norms."""
    out = tmp_path_factory.mktemp("table") / "gains.jsonl"
    settings = ["--share=1", "--upper=0.2", "--seeds=2", "--epochs=2", "--rate=0.01", "--workers=1"]
    done = run("sensitivity", folder, *ROWS, f"--data={data}", f"--out={out}", *settings)
    assert done.exit_code == 0, done.output
    assert "hundredths of held-out loss gained" in done.output
    assert "over the head alone: a loss of " in done.output
    return out


def run(command: str, folder: Path, *options: str) -> Result:
    return CliRunner().invoke(cli, [command, str(folder), *options])


def test_contributions_of_matrices_and_norms_by_loss(table: Path) -> None:
    header, trials = read_table(table)
    names = {item.name for item, _ in trials if item is not None}

    assert header["judge"] == "held-out loss"
    assert header["recipe"]["optimizer"] == "AdamW()"
    assert names == {
        "last 1 blocks",
        *(f"model.layers.1.mlp.{name}_proj.weight" for name in ("gate", "up", "down")),
    }
    assert all(outcome.score < 0 for outcome in trials.values())


def test_winner_of_the_race_trains_in_finetune_lm(
    folder: Path, data: Path, table: Path, tmp_path: Path
) -> None:
    scheme = tmp_path / "found.toml"
    limits = ["--memory=40KB", "--evaluations=8", "--validate=1", "--no-full", f"--out={scheme}"]
    found = run(
        "search",
        folder,
        *ROWS,
        f"--data={data}",
        f"--contributions={table}",
        "--device=rpi4",
        *limits,
    )
    trained = run(
        "finetune-lm",
        folder,
        *(*ROWS, f"--data={data}", f"--out={tmp_path / 'out'}", f"--scheme={scheme}", "--json"),
        *("--lr=0.01", "--clip=0", "--epochs=2", "--answer-tokens=0", f"--validation={data}"),
    )

    assert found.exit_code == 0, found.output
    assert "(reliability: held-out loss " in found.output
    assert "held-out loss on the validation set by real training" in found.output
    assert "(perplexity " in scheme.read_text()
    graph = decoder_subject(folder, BATCH, LENGTH).graph
    assert "model.norm.weight" in load_scheme(scheme).resolve(graph)
    assert trained.exit_code == 0, trained.output
    facts = json.loads(trained.stdout)
    assert facts["after"]["loss"] < facts["before"]["loss"]


def test_length_must_match_the_table(folder: Path, table: Path, tmp_path: Path) -> None:
    options = ["--max-length=24", f"--batch={BATCH}", f"--contributions={table}"]
    done = run("search", folder, *options, f"--out={tmp_path / 'found.toml'}")

    assert isinstance(done.exception, PockEngineError)
    assert "--batch, --max-length and --quantize" in str(done.exception)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--classes=3"], "--classes does not apply to the decoder {folder}; its rows are"),
        (["--weights=some.safetensors"], "--weights does not apply to the decoder"),
        (["--shape=input_ids=2x8"], "--shape does not apply to the decoder"),
        (["--validation=1.5"], "the share of validation is 1.5; give one in"),
        (["--max-length=65"], "--max-length 65 is beyond the 64 tokens"),
        (["--data={rows}"], "cannot be read as text in UTF-8"),
    ],
)
def test_errors_name_options_that_decoders_do_not_take(
    folder: Path, data: Path, tmp_path: Path, options: list[str], message: str
) -> None:
    rows = tmp_path / "rows.npz"
    np.savez(rows, input=np.ones(3), target=np.zeros(3, np.int64))
    arguments = [option.format(rows=rows) for option in options]
    out = tmp_path / "table.jsonl"
    done = run("sensitivity", folder, *ROWS, f"--data={data}", f"--out={out}", *arguments)

    assert isinstance(done.exception, PockEngineError)
    assert message.format(folder=folder) in str(done.exception)
    assert not out.exists()


def test_text_options_are_only_for_decoders(tmp_path: Path) -> None:
    options = ["--max-length=16", f"--data={tmp_path}", f"--out={tmp_path / 'table.jsonl'}"]
    done = CliRunner().invoke(cli, ["sensitivity", "cnn-8", *options])

    assert isinstance(done.exception, PockEngineError)
    assert "are for decoders, and cnn-8 is none" in str(done.exception)
