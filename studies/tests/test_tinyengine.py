"""The comparison with TinyEngine names the files missing from a clone."""

import zipfile
from pathlib import Path

import pytest

from pockengine.devices import load_device
from pockengine.errors import BuildError
from pockengine.studies.tinyengine.compare import DEVICE
from pockengine.studies.tinyengine.theirs import GENERATED, build_theirs


def test_a_clone_without_its_submodule_is_refused_by_name(tmp_path: Path) -> None:
    device = load_device(DEVICE)
    with pytest.raises(BuildError, match=r"has no .*codegen\.zip; clone tinyengine with"):
        build_theirs(tmp_path, device, tmp_path)
    (tmp_path / GENERATED).parent.mkdir(parents=True)
    with zipfile.ZipFile(tmp_path / GENERATED, "w") as archive:
        archive.writestr("codegen/Source/genModel.c", "")
    (tmp_path / "TinyEngine" / "include").mkdir(parents=True)
    with pytest.raises(BuildError, match="has no TinyEngine/third_party/CMSIS"):
        build_theirs(tmp_path, device, tmp_path)
