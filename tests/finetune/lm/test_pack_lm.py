"""`pockengine pack-lm` packs chats that the C runtime refuses; the runner trains on the rows."""

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from click.testing import CliRunner
from safetensors.numpy import load_file

from pockengine.cli.compile_lm import compile_lm
from pockengine.cli.finetune_lm import finetune_lm
from pockengine.cli.pack_lm import pack_lm
from pockengine.finetune.task import IGNORED
from pockengine.tests.finetune.lm.decoders import WORDS, llama, save
from pockengine.tests.finetune.lm.tool_chats import CHAT, SCHEMA, WRITES_TOOLS

LENGTH = 320


def chats(path: Path, count: int = 6) -> Path:
    """Write chats that call tools, with other last answers."""
    rows = [
        {"messages": [*CHAT[:-1], {**CHAT[-1], "content": "ja" * n}], "tools": [SCHEMA]}
        for n in range(1, count + 1)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def invoked(command: Any, *arguments: Any) -> Any:
    result = CliRunner().invoke(command, [*map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def decoder(folder: Path, kind: str) -> Path:
    """Write a decoder that knows positions, or one that would mix the texts of a row."""
    if kind == "llama":
        return save(folder, llama(max_position_embeddings=LENGTH), WRITES_TOOLS)
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "ffn_dim": 48, "num_hidden_layers": 1, "num_attention_heads": 4}
    sizes = {"word_embed_proj_dim": 32, "vocab_size": WORDS, "max_position_embeddings": LENGTH}
    config = transformers.OPTConfig(dropout=0.0, **shape, **sizes)
    return save(folder, transformers.OPTForCausalLM(config), WRITES_TOOLS)


@pytest.mark.parametrize("kind", ["llama", "opt"])
def test_a_device_trains_on_packed_tool_calls_as_python_does(tmp_path: Path, kind: str) -> None:
    folder, data = decoder(tmp_path / "model", kind), chats(tmp_path / "chats.jsonl")
    rows, out, length = tmp_path / "rows.safetensors", tmp_path / "phone", f"--max-length={LENGTH}"
    facts = json.loads(invoked(compile_lm, folder, f"--out={out}", length, "--json").stdout)
    packed = invoked(pack_lm, folder, f"--data={data}", f"--out={rows}", length, "--json")
    options = ("--hold-out=0", "--answer-tokens=0", "--no-merge", "--lr=0.01", "--seed=3")
    tuned = tmp_path / "tuned"
    invoked(finetune_lm, folder, f"--data={data}", f"--out={tuned}", length, "--json", *options)
    log = map(json.loads, (tuned / "checkpoints" / "history.jsonl").read_text().splitlines())
    expected = [row["step"]["loss"] for row in log if "step" in row]

    runner, _, *files = facts["command"].split()
    command = [runner, "finetune", *files, "--seed=3", "--lr=0.01"]
    done = subprocess.run([*command, f"--data={rows}"], cwd=out, capture_output=True, check=True)
    found = [row["loss"] for row in map(json.loads, done.stdout.splitlines()) if "loss" in row]
    assert len(expected) == json.loads(packed.stdout)["rows"] > 2
    np.testing.assert_array_equal(np.float32(found), np.float32(expected))

    refused = subprocess.run(
        [*command, f"--data={data}"], cwd=out, capture_output=True, check=False
    )
    assert b"line 1 is not an example: tools, which are not read; `pockengine" in refused.stderr


def test_rows_have_the_tokens_of_the_template(tmp_path: Path) -> None:
    folder, data = decoder(tmp_path / "model", "llama"), chats(tmp_path / "chats.jsonl", 1)
    rows = tmp_path / "new" / "rows.safetensors"
    done = invoked(pack_lm, folder, f"--data={data}", f"--out={rows}", f"--max-length={LENGTH}")
    assert f" tokens in 1 rows of {LENGTH} to {rows}" in done.stdout

    words = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    chat = [{**message, "content": message["content"] or ""} for message in CHAT]
    chat[-1]["content"] = "ja"
    expected = words.apply_chat_template(chat, tools=[SCHEMA], return_dict=True)["input_ids"]
    arrays = {name: array[0] for name, array in load_file(rows).items()}
    size = len(expected)
    assert arrays["input_ids"][:size].tolist() == expected
    assert arrays["position_ids"][:size].tolist() == list(range(size))
    learned = arrays["labels"][arrays["labels"] != IGNORED]
    assert words.decode(learned) == '[weather {"city": "Kraków"}]</s>ja</s>'


def test_the_output_is_named_as_safetensors(tmp_path: Path) -> None:
    data = chats(tmp_path / "chats.jsonl")
    result = CliRunner().invoke(pack_lm, [str(tmp_path), f"--data={data}", "--out=rows.npz"])
    assert "pack-lm writes safetensors; name a file of it, not rows.npz" in result.output
