"""Writing replaces only artifacts, atomically; the files of an artifact belong together."""

import copy
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pockengine.backends.artifact import Artifact, check_place, load_artifact, write_artifact
from pockengine.backends.registry import open_session
from pockengine.devices.schema import load_device
from pockengine.errors import ArtifactError, RuntimeFailure
from pockengine.tests.backends.c.harness import device_of
from pockengine.tests.backends.c.programs import compile_for, point_graph


def written(folder: Path, size: int = 300) -> Artifact:
    program, backend = compile_for(point_graph(size), device_of("avx2"))
    return write_artifact(program, backend, folder, build_code=False)


def built(folder: Path, size: int) -> Artifact:
    host = load_device("host")
    device = replace(host, processor=replace(host.cpu, cores=2))
    return write_artifact(*compile_for(point_graph(size), device), folder)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Artifact, Artifact]:
    place = tmp_path_factory.mktemp("artifacts")
    return built(place / "small", 8), built(place / "large", 300)


def copied(artifact: Artifact, place: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """A copy of an artifact with a changed manifest and correct hashes."""
    folder = Path(shutil.copytree(artifact.folder, place / "copy"))
    table = json.loads((folder / "manifest.json").read_text())
    change(table)
    (folder / "manifest.json").write_text(json.dumps(table))
    return folder


@pytest.mark.parametrize("name", ["thesis.txt", "code/notes.txt", "bin/run.sh", ".hidden", "link"])
def test_what_is_not_of_an_artifact_is_never_lost(tmp_path: Path, name: str) -> None:
    folder = written(tmp_path / "net").folder
    mine = folder / name
    if name == "link":
        mine.symlink_to("manifest.json")
    else:
        mine.parent.mkdir(exist_ok=True)
        mine.write_text("years of work")
    for refused in (lambda: check_place(folder), lambda: written(folder)):
        with pytest.raises(ArtifactError, match=f"{name}; move that away"):
            refused()
    assert mine.exists()
    mine.unlink()
    assert written(folder, 5).params["point"].type.shape == (5,)


def test_weights_that_were_trained_into_an_artifact_are_never_lost(tmp_path: Path) -> None:
    folder = written(tmp_path / "net").folder
    (folder / "weights.safetensors").write_bytes(b"trained")
    with pytest.raises(ArtifactError, match=r"weights\.safetensors"):
        check_place(folder)


@pytest.mark.parametrize("manifest", ["{}", "[]", '{"files": 3}', '{"files": {"thesis.txt": 0}}'])
def test_a_foreign_manifest_makes_no_artifact(tmp_path: Path, manifest: str) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    (tmp_path / "manifest.json").write_text(manifest)
    with pytest.raises(ArtifactError, match=r"thesis\.txt"):
        written(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["manifest.json", "thesis.txt"]


def test_files_links_and_closed_folders_are_no_places(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    (tmp_path / "dangling").symlink_to("nowhere")
    for name, words in (
        ("file", "is no folder"),
        ("link", "is a link"),
        ("dangling", "is a link"),
        ("file/net", "cannot be written"),
        ("x" * 300, "cannot be written"),
    ):
        with pytest.raises(ArtifactError, match=words):
            check_place(tmp_path / name)
    written(tmp_path / "folder")  # an empty folder is accepted


def test_a_library_of_another_program_is_not_called(
    pair: tuple[Artifact, Artifact], tmp_path: Path
) -> None:
    small, large = pair

    def swap(table: dict[str, Any]) -> None:
        table["library"] = f"bin/{large.library.name}"
        table["files"][table["library"]] = table["files"].pop(f"bin/{small.library.name}")
        table["files"][table["library"]] = large.files[f"bin/{large.library.name}"]

    folder = copied(small, tmp_path, swap)
    shutil.copy(large.library, folder / "bin")
    with pytest.raises(ArtifactError, match="to another program"):
        open_session(folder)


@pytest.mark.parametrize("field", ["shape", "dtype", "name", "arena_bytes", "threads", "params"])
def test_a_manifest_that_says_other_sizes_is_refused(
    pair: tuple[Artifact, Artifact], tmp_path: Path, field: str
) -> None:
    def change(table: dict[str, Any]) -> None:
        row = table["entries"]["predict"]["inputs"][0]
        others = {"shape": [4], "dtype": "i32", "name": "y", "arena_bytes": 64, "threads": 64}
        if field == "params":
            table["params"].reverse()
        elif field in row:
            row[field] = others[field]
        else:
            table[field] = others[field]

    with pytest.raises(ArtifactError, match="to another program"):
        open_session(copied(pair[1], tmp_path, change))


def test_a_library_that_is_not_listed_is_not_used(
    pair: tuple[Artifact, Artifact], tmp_path: Path
) -> None:
    folder = copied(pair[0], tmp_path, lambda table: None)
    shutil.copy(pair[1].library, folder / "bin" / "libprogram-0000000000000000.so")
    with open_session(folder) as session:
        assert session.get_param("point").shape == (8,)


def test_an_artifact_of_a_board_says_where_it_runs(pair: tuple[Artifact, Artifact]) -> None:
    board = replace(pair[0], device="rpi4", library_file=None)
    with pytest.raises(ArtifactError, match=r"for rpi4 has no library .* its runner on the device"):
        _ = board.library


def test_the_library_checks_the_sizes_that_it_is_given(pair: tuple[Artifact, Artifact]) -> None:
    large = pair[1]
    with open_session(large) as session:
        spec = large.entries["predict"]
        smaller = replace(spec, inputs={"x": replace(spec.inputs["x"], shape=(299,))})
        other = copy.copy(large)
        vars(other)["entries"] = {**large.entries, "predict": smaller}
        session.artifact = other
        with pytest.raises(RuntimeFailure, match="tensor x has 1200 bytes, not 1196"):
            session.predict({"x": np.zeros(299, np.float32)})


def test_replacing_leaves_nothing_behind(tmp_path: Path) -> None:
    for size in (3, 4, 5):
        written(tmp_path / "net", size)
    assert [path.name for path in tmp_path.iterdir()] == ["net"]
    assert load_artifact(tmp_path / "net").params["point"].type.shape == (5,)


def test_a_failed_write_leaves_the_old_artifact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "net", 3)
    monkeypatch.setattr("pockengine.backends.artifact.manifest_of", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        written(tmp_path / "net", 4)
    assert [path.name for path in tmp_path.iterdir()] == ["net"]
    assert load_artifact(tmp_path / "net").params["point"].type.shape == (3,)


def test_systems_that_cannot_exchange_folders_rename_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(one: Path, other: Path) -> None:
        raise NotImplementedError

    monkeypatch.setattr("pockengine.backends.replace._exchange", refuse)
    for size in (3, 4):
        written(tmp_path / "net", size)
    assert [path.name for path in tmp_path.iterdir()] == ["net"]
    assert load_artifact(tmp_path / "net").params["point"].type.shape == (4,)


def test_what_is_saved_while_a_folder_is_replaced_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pockengine.backends import replace as module

    written(tmp_path / "net", 3)
    exchange = module._exchange

    def late(one: Path, other: Path) -> None:
        (tmp_path / "net" / "trained").write_text("hours")
        monkeypatch.setattr(module, "_exchange", exchange)
        exchange(one, other)

    monkeypatch.setattr(module, "_exchange", late)
    with pytest.raises(ArtifactError, match="trained"):
        written(tmp_path / "net", 4)
    assert (tmp_path / "net" / "trained").read_text() == "hours"
    assert load_artifact(tmp_path / "net").params["point"].type.shape == (3,)
    assert [path.name for path in tmp_path.iterdir()] == ["net"]


ODD: list[tuple[str, object]] = [
    ("arena_bytes", 10**5000),
    ("arena_bytes", 1.5),
    ("arena_bytes", -1),
    ("arena_bytes", True),
    ("threads", 0),
    ("name", None),
    ("entries", []),
    ("entries", {"train": None}),
    ("entries", {"train": {"inputs": {}, "outputs": []}}),
    ("params", None),
    ("params", [[]]),
    ("params", [{"name": "x", "dtype": "f32", "shape": [0]}]),
    ("params", [{"name": "x", "dtype": "f99", "shape": [1]}]),
    ("params", [{"name": "x", "dtype": "f32", "shape": [2**40, 2**40]}]),
    ("scheme", {"x": 3}),
    ("scheme", [1]),
    ("sizes", []),
    ("sizes", {"name": "batch"}),
    ("library", "bin/evil.so"),
    ("library", 3),
    ("files", {"../x": "0"}),
    ("files", {"/etc/passwd": "0"}),
    ("files", {"weights.safetensors": 0}),
    ("files", []),
    ("schema", [2]),
]


@pytest.mark.parametrize(("field", "value"), ODD, ids=range(len(ODD)))
def test_odd_manifests_are_artifact_errors(tmp_path: Path, field: str, value: object) -> None:
    folder = written(tmp_path / "net").folder
    table = json.loads((folder / "manifest.json").read_text())
    text = "1" + "0" * 5000 if value == 10**5000 else json.dumps(value)
    table[field] = "@"
    (folder / "manifest.json").write_text(json.dumps(table).replace('"@"', text))
    with pytest.raises(ArtifactError):
        load_artifact(folder)


@pytest.mark.parametrize(
    "text", [b"[" * 100_000, b"\xff", b"NaN", b'{"a": 1, "a": 1}', b"", b'"x"', b"\x00"]
)
def test_manifests_that_are_no_json_are_artifact_errors(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "manifest.json").write_bytes(text)
    with pytest.raises(ArtifactError):
        load_artifact(tmp_path)
    os.unlink(tmp_path / "manifest.json")
    os.mkfifo(tmp_path / "manifest.json")
    with pytest.raises(ArtifactError):
        load_artifact(tmp_path)


def test_an_artifact_without_a_library_says_so(pair: tuple[Artifact, Artifact]) -> None:
    assert subprocess.run([str(pair[0].executable)], capture_output=True, check=False).returncode
    with pytest.raises(ArtifactError, match="no library"):
        _ = replace(pair[0], library_file=None).library
