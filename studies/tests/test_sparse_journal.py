"""The journal keeps finished trials, whatever a kill leaves behind."""

from pathlib import Path

import pytest

from pockengine.errors import FinetuneError
from pockengine.studies.sparse.journal import Journal


def test_what_was_put_is_there_when_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "new" / "journal.jsonl"
    Journal(path).put({"kind": "trial", "seed": 1}, {"accuracy": 0.5})
    again = Journal(path)
    assert again.get({"seed": 1, "kind": "trial"}) == {"accuracy": 0.5}
    assert again.get({"kind": "trial", "seed": 2}) is None


def test_torn_last_line_is_dropped_and_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    Journal(path).put({"seed": 1}, {"accuracy": 0.5})
    whole = path.read_text()
    path.write_text(whole + '{"key": {"seed": 2}, "res')
    journal = Journal(path)
    assert path.read_text() == whole
    journal.put({"seed": 2}, {"accuracy": 0.25})
    assert [result["accuracy"] for _, result in Journal(path).entries()] == [0.5, 0.25]


@pytest.mark.parametrize("line", ["nonsense", "[]", '{"key": {}}', "3", '{"key": 3}'])
def test_damaged_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(FinetuneError, match=r"journal\.jsonl:1 is no entry"):
        Journal(path)


def test_entries_are_found_by_parts_of_their_key(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    for seed in (0, 1):
        for scheme in ("full", "sparse"):
            journal.put({"scheme": scheme, "seed": seed}, {"n": seed})
    found = [key["seed"] for key, _ in journal.entries(scheme="sparse")]
    assert found == [0, 1]


def test_packed_journal_is_read_as_it_was_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    for seed in range(50):
        journal.put({"seed": seed}, {"accuracy": seed / 50})
    size, entries = path.stat().st_size, list(journal.entries())
    journal.pack()
    assert not path.exists()
    assert journal.packed.stat().st_size < size / 5
    again = Journal(path)
    assert list(again.entries()) == entries
    again.put({"seed": 50}, {"accuracy": 1.0})
    assert list(Journal(path).entries()) == [*entries, ({"seed": 50}, {"accuracy": 1.0})]


def test_packing_again_adds_what_came_since(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    for seed in (0, 1):
        journal = Journal(path)
        journal.put({"seed": seed}, {"n": seed})
        journal.pack()
        journal.pack()  # nothing new
    assert [key["seed"] for key, _ in Journal(path).entries()] == [0, 1]


def test_kill_between_packing_and_removing_doubles_nothing(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    journal.put({"seed": 1}, {"n": 1})
    lines = path.read_text()
    journal.pack()
    path.write_text(lines)
    assert len(list(Journal(path).entries())) == 1


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\xfd7zXZ\x00\x00\x04"])
def test_damaged_packed_journal_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "journal.jsonl.xz").write_bytes(content)
    with pytest.raises(FinetuneError, match=r"journal\.jsonl\.xz is no packed journal"):
        Journal(tmp_path / "journal.jsonl")
