"""A checkpoint's contents and size, and the detection of damage."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from pockengine import __version__
from pockengine.backends.checkpoint import read_checkpoint
from pockengine.backends.checkpoint_file import load_checkpoint
from pockengine.backends.checkpoint_texts import texts_of as write_texts
from pockengine.backends.native.runtime_files import runtime_file
from pockengine.backends.native.state_text import replaced, written
from pockengine.backends.rate_schedule import RateSchedule
from pockengine.backends.registry import open_session
from pockengine.backends.session import Course, Progress
from pockengine.backends.training_state import fields_of
from pockengine.compiler.optim import Adam
from pockengine.errors import ArtifactError, RuntimeFailure
from pockengine.tests.backends.c.resuming import SEED, Case, new_case, same
from pockengine.tests.backends.c.sealed import texts_of, write_sealed


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return new_case(tmp_path_factory.mktemp("checkpoint"), Adam(), 1, "full")


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return new_case(tmp_path_factory.mktemp("adapted"), Adam(), 1, "lora")


def saved(case: Case, path: Path, *, whole: bool = False) -> Path:
    with open_session(case.artifact) as session:
        case.train(session, 3)
        session.save(path, whole=whole)
    return path


def test_a_checkpoint_says_what_it_holds(case: Case, tmp_path: Path) -> None:
    texts = texts_of(saved(case, tmp_path / "checkpoint"))
    assert len(texts.pop("pockengine.frozen")) == 8
    assert texts == {
        "pockengine.checkpoint": "4",
        "pockengine.steps": "3",
        "pockengine.updates": "3",
        "pockengine.collected": "0",
        "pockengine.seed": str(SEED),
        "pockengine.content": "trained",
        "pockengine.name": "dropping",
        "pockengine.program": case.artifact.specification().digest(),
        "pockengine.runtime": __version__,
    }


@pytest.mark.parametrize(
    "schedule",
    [
        RateSchedule("linear", 0.3, 40, 3),
        RateSchedule("multistep", 0.3, 40, 3, 0.5, milestones=(5, 9)),
        RateSchedule("restarts", 0.3, 40, 3, 2.0, 7),
    ],
)
def test_every_field_goes_through_c_and_python(
    case: Case, tmp_path: Path, schedule: RateSchedule
) -> None:
    path = tmp_path / "checkpoint"
    progress = Progress(12, 11, 1, 2**32 - 1, Course(schedule, 640, True, 32, True, 4))
    with open_session(case.artifact) as session:
        session._go_on_from(progress)
        session.save(path)
        assert load_checkpoint(case.artifact, path)[1] == progress
        assert {f"pockengine.{field.key}" for field in fields_of(progress)} <= texts_of(path).keys()
        session._go_on_from(Progress())
        session.load(path)
        assert session._progress() == progress
        with_others = {**texts_of(path), **write_texts(progress)}
        assert with_others == texts_of(path)


def test_the_runtime_has_the_fields_of_the_table() -> None:
    for name, between in written().items():
        text = runtime_file(name).read_text(encoding="utf-8")
        assert replaced(text, between) == text, (
            f"{name}: run `python -m pockengine.backends.native.state_text`"
        )


def test_adapters_are_saved_without_the_weights_below_them(adapted: Case, tmp_path: Path) -> None:
    path, whole = saved(adapted, tmp_path / "a"), saved(adapted, tmp_path / "b", whole=True)
    stored = load_file(path)
    assert {"first.weight", "second.weight"} <= load_file(whole).keys() - stored.keys()
    assert any("lora" in name for name in stored)
    with open_session(adapted.artifact) as one, open_session(adapted.artifact) as other:
        one.load(path)
        other.load(whole)
        assert (one.steps, one.updates) == (other.steps, other.updates) == (3, 3)
        same(one.params(), other.params())
        same(read_checkpoint(adapted.artifact, path), one.params())
        same(read_checkpoint(adapted.artifact, whole), one.params())


def test_adapters_of_other_weights_are_refused(adapted: Case, tmp_path: Path) -> None:
    path = saved(adapted, tmp_path / "checkpoint")
    with open_session(adapted.artifact) as session:
        session.set_param("first.weight", session.get_param("first.weight") + 1)
        before = session.params()
        with pytest.raises(RuntimeFailure, match="on top of other frozen weights"):
            session.load(path)
        same(session.params(), before)
    texts = {**texts_of(path), "pockengine.frozen": "0" * 8}
    write_sealed(path, load_file(path), texts)
    with pytest.raises(ArtifactError, match="other frozen weights"):
        read_checkpoint(adapted.artifact, path)


def test_a_flipped_byte_is_named_wherever_it_is(case: Case, tmp_path: Path) -> None:
    path = saved(case, tmp_path / "checkpoint")
    sound = path.read_bytes()
    start = 8 + int.from_bytes(sound[:8], "little")
    rng = np.random.default_rng(1)
    places = [*range(0, start, 3), *rng.integers(start, len(sound), 300).tolist()]
    with open_session(case.artifact) as session:
        before = session.params()
        for place in places:
            damaged = bytearray(sound)
            damaged[place] ^= 1 << int(rng.integers(8))
            path.write_bytes(damaged)
            with pytest.raises(RuntimeFailure) as error:
                session.load(path)
            assert str(path) in str(error.value)
            if place >= start:
                assert "the checksum of" in str(error.value)
            with pytest.raises(ArtifactError):
                read_checkpoint(case.artifact, path)
        same(session.params(), before)
        path.write_bytes(sound)
        session.load(path)


def test_damage_names_the_tensor(case: Case, tmp_path: Path) -> None:
    path = saved(case, tmp_path / "checkpoint")
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    last = max(load_file(path), key=lambda name: _end(path, name))
    with (
        open_session(case.artifact) as session,
        pytest.raises(RuntimeFailure, match=f"damaged: the checksum of {last}"),
    ):
        session.load(path)
    with pytest.raises(ArtifactError, match=f"damaged: the checksum of {last}"):
        read_checkpoint(case.artifact, path)


def _end(path: Path, name: str) -> int:
    data = path.read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return int(header[name]["data_offsets"][1])


def test_a_file_that_was_cut_is_refused(case: Case, tmp_path: Path) -> None:
    path = saved(case, tmp_path / "checkpoint")
    sound = path.read_bytes()
    with open_session(case.artifact) as session:
        for length in (0, 7, 8, 40, 60, len(sound) // 2, len(sound) - 1):
            path.write_bytes(sound[:length])
            with pytest.raises(RuntimeFailure, match="checkpoint"):
                session.load(path)
            with pytest.raises(ArtifactError, match="checkpoint"):
                read_checkpoint(case.artifact, path)


def test_a_checkpoint_that_another_tool_wrote_again_is_refused(case: Case, tmp_path: Path) -> None:
    path = saved(case, tmp_path / "checkpoint")
    save_file(load_file(path), path, metadata=texts_of(path))
    with (
        open_session(case.artifact) as session,
        pytest.raises(RuntimeFailure, match="lost its checksums"),
    ):
        session.load(path)
    with pytest.raises(ArtifactError, match="lost its checksums"):
        read_checkpoint(case.artifact, path)


def test_files_without_progress_begin_at_the_first_step(case: Case, tmp_path: Path) -> None:
    path = saved(case, tmp_path / "weights", whole=True)
    save_file(load_file(path), path, metadata={"format": "pt", "author": "somebody" * 99})
    with open_session(case.artifact) as session:
        case.train(session, 2)
        session.load(path)
        assert session.steps == 0


def test_checkpoints_of_the_first_version_still_load(case: Case, tmp_path: Path) -> None:
    path = saved(case, tmp_path / "checkpoint", whole=True)
    fields = ("checkpoint", "steps", "updates", "collected", "seed")
    texts = {f"pockengine.{key}": texts_of(path)[f"pockengine.{key}"] for key in fields}
    arrays = load_file(path)
    save_file(arrays, path, metadata={**texts, "pockengine.checkpoint": "1"})
    with open_session(case.artifact) as session:
        session.load(path)
        assert (session.steps, session.seed) == (3, SEED)
        same(session.params(), {name: arrays[name] for name in session.params()})


def test_checkpoints_of_the_second_version_load_without_their_schedule(
    case: Case, tmp_path: Path
) -> None:
    path = saved(case, tmp_path / "checkpoint")
    scheduled = {"schedule": "cosine", "rate": "0" * 16, "warmup": "0", "total": "9"}
    texts = {**texts_of(path), "pockengine.checkpoint": "2", "pockengine.batches": "5"}
    texts |= {f"pockengine.{key}": value for key, value in scheduled.items()}
    write_sealed(path, load_file(path), texts)
    with open_session(case.artifact) as session:
        session.load(path)
        assert (session.steps, session.seed) == (3, SEED)
        session.save(path)
    assert "pockengine.schedule" not in texts_of(path)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("checkpoint", "5", "version 5; this program reads versions 1 to 4"),
        ("checkpoint", "one", 'checkpoint is "one", which is no value'),
        ("steps", "-1", "no value of its kind"),
        ("steps", "4294967296", "no value of its kind"),
        ("steps", "1" * 300, "no value of its kind"),
        ("seed", "4294967296", "no value of its kind"),
        ("content", "some", "no value of its kind"),
        ("frozen", "12", "no value of its kind"),
        ("schedule", "square", "no value of its kind"),
        ("rate", "0.5", "no value of its kind"),
        ("rows", "9" * 19, "no value of its kind"),
        ("shuffle", "2", "no value of its kind"),
        ("warmup", "3", "lacks pockengine.schedule"),
        ("updates", None, "lacks pockengine.updates"),
        ("content", None, "lacks pockengine.content"),
        ("checkpoint", None, "lacks pockengine.checkpoint"),
    ],
)
def test_damaged_progress_is_refused_by_name(
    case: Case, tmp_path: Path, key: str, value: str | None, words: str
) -> None:
    path = saved(case, tmp_path / "checkpoint")
    texts = texts_of(path)
    if value is None:
        del texts[f"pockengine.{key}"]
    else:
        texts[f"pockengine.{key}"] = value
    write_sealed(path, {name: array + 1 for name, array in load_file(path).items()}, texts)
    with open_session(case.artifact) as session:
        before = session.params()
        with pytest.raises(RuntimeFailure, match=words):
            session.load(path)
        same(session.params(), before)


@pytest.mark.parametrize("rate", ["0.1", None, "fast"])
def test_a_rate_that_is_no_number_is_refused(case: Case, rate: object) -> None:
    with (
        open_session(case.artifact) as session,
        pytest.raises(RuntimeFailure, match="lr must be a number, not"),
    ):
        session.train_step(case.batches[0], lr=rate)
