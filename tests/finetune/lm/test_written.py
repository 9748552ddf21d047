"""Folders with merged weights, written from folders of other layouts."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import transformers
from click.testing import CliRunner
from safetensors.numpy import load_file, save_file

from pockengine.cli.finetune_lm import finetune_lm
from pockengine.compiler.sparse.choice import parse_choice
from pockengine.compiler.sparse.lora import with_adapters
from pockengine.compiler.sparse.scheme import Scheme
from pockengine.errors import FinetuneError
from pockengine.finetune.lm import written
from pockengine.finetune.lm.run import RunSettings, check_written
from pockengine.finetune.lm.written import write_adapters, write_merged
from pockengine.models.causal_lm import open_causal_lm
from pockengine.models.shards import INDEX
from pockengine.tests.finetune.lm.decoders import save


def test_merged_folder_of_one_indexed_shard_opens(tmp_path: Path) -> None:
    folder = tmp_path / "net"
    save(folder)
    tensors = {name: one.read() for name, one in open_causal_lm(folder).file_weights().items()}
    for path in folder.glob("model-*"):
        path.unlink()
    file, odd = "model-00001-of-00001.safetensors", {"odd": np.ones(2), "empty": np.ones(0)}
    save_file({**tensors, **odd}, folder / file)
    places = dict.fromkeys([*tensors, *odd], file)
    (folder / INDEX).write_text(json.dumps({"weight_map": places}))
    model = open_causal_lm(folder)
    session: Any = SimpleNamespace(artifact=SimpleNamespace(params={}, adapters=()))
    write_merged(model, model.graph(1, 8), session, tmp_path / "merged")
    merged = open_causal_lm(tmp_path / "merged").file_weights()
    assert set(merged) == set(tensors)
    assert transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "merged")


def test_merged_weights_beyond_the_files_type_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save(tmp_path / "net")
    for path in folder.glob("*.safetensors"):
        halves = {name: array.astype(np.float16) for name, array in load_file(path).items()}
        save_file(halves, path)
    model = open_causal_lm(folder)
    graph = model.graph(1, 8)
    name = next(name for name in graph.params if "norm" in name)
    diverged = np.full(graph.params[name].value.shape, 7e4, np.float32)
    monkeypatch.setattr(written, "trained_params", lambda session: {name: diverged})
    session: Any = SimpleNamespace(artifact=SimpleNamespace(params={}, adapters=()))
    with pytest.raises(FinetuneError, match=r"norm.weight reaches 7e\+04 after training.* f16"):
        write_merged(model, graph, session, tmp_path / "merged")


def test_gguf_adapters_without_what_trained_whole_are_reported(tmp_path: Path) -> None:
    (tmp_path / "texts.jsonl").write_text(json.dumps({"text": "a cow says muuh"}) + "\n")
    (tmp_path / "scheme.toml").write_text(
        '[params]\n"*.q_proj.weight" = { lora = 2, alpha = 4 }\n"lm_head.weight" = "full"\n'
    )
    arguments = [str(save(tmp_path / "net")), f"--data={tmp_path / 'texts.jsonl'}", "--steps=1"]
    arguments += ["--hold-out=0", "--answer-tokens=0", "--no-merge", "--max-length=32"]
    arguments += [f"--scheme={tmp_path / 'scheme.toml'}", f"--out={tmp_path / 'out'}"]
    done = CliRunner().invoke(finetune_lm, arguments, catch_exceptions=False)
    assert (tmp_path / "out" / "adapter.gguf").is_file()
    assert "adapter.gguf lacks lm_head.weight (1 trained whole)" in " ".join(done.output.split())


def test_adapters_that_peft_cannot_express_are_reported(tmp_path: Path) -> None:
    model = open_causal_lm(save(tmp_path / "net"))
    graph = model.graph(1, 8)
    queries, values = "model.layers.0.self_attn.q_proj.weight", "*.v_proj.weight"
    rules = [
        (name, parse_choice({"lora": 2, "alpha": 4, "dora": dora}, "mixed"))
        for name, dora in ((queries, False), (values, True))
    ]
    scheme = Scheme("mixed", tuple(rules))
    artifact: Any = SimpleNamespace(adapters=with_adapters(graph, scheme)[2], scheme={})
    session: Any = SimpleNamespace(artifact=artifact)
    lines: list[str] = []
    assert not write_adapters(model, graph, session, folder=tmp_path / "adapter", say=lines.append)
    assert not (tmp_path / "adapter").exists()
    assert f"adapter is not written: {queries} has an adapter without DoRA" in lines[0]
    prepared: Any = SimpleNamespace(model=model, graph=graph)
    check_written(prepared, artifact, RunSettings(merge=True))
    with pytest.raises(FinetuneError, match=r"adapters cannot be written: .*leave out --no-merge"):
        check_written(prepared, artifact, RunSettings(merge=False))


def test_configuration_of_merged_weights_names_no_quantization(tmp_path: Path) -> None:
    (tmp_path / "quantized").mkdir()
    (tmp_path / "merged").mkdir()
    about = {"quantization_config": {}, "text_config": {"quantization_config": {}, "layers": 2}}
    (tmp_path / "quantized" / "config.json").write_text(json.dumps(about))
    written._copy_others(tmp_path / "quantized", tmp_path / "merged")
    read = json.loads((tmp_path / "merged" / "config.json").read_text())
    assert read == {"text_config": {"layers": 2}}
