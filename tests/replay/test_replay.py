"""All generated text stays equal, byte for byte, unless a commit updates the hashes."""

import os
from pathlib import Path

import pytest

from pockengine.tests.replay.cases import Case, cases
from pockengine.tests.replay.texts import hash_text, read_hashes, texts

CASES = cases()


def _stored_hashes(case: Case) -> dict[str, str]:
    return {file: digest for (name, file), digest in read_hashes().items() if name == case.name}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_generated_text_is_unchanged(case: Case, tmp_path: Path) -> None:
    generated = texts(case, tmp_path / "artifact")
    stored = _stored_hashes(case)
    hashes = {file: hash_text(text) for file, text in generated.items()}
    changed = sorted(file for file in hashes | stored if hashes.get(file) != stored.get(file))
    if not changed:
        return
    place = Path(os.environ.get("TEST_UNDECLARED_OUTPUTS_DIR", tmp_path)) / case.name
    place.mkdir(exist_ok=True)
    for file, text in generated.items():
        (place / file).write_text(text)
    pytest.fail(
        f"{case.name}: {', '.join(changed)} differ from hashes.txt. The new text is in {place}; "
        "`python -m pockengine.tests.replay.update FOLDER` at the commit before writes the old "
        "one, for `diff -ru`. If the change is intended, run it here too, and say in the commit "
        "why generated code changes.",
        pytrace=False,
    )


def test_hashes_cover_exactly_these_cases() -> None:
    assert {case for case, _ in read_hashes()} == {case.name for case in CASES}
