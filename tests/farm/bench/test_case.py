"""What the bench trains, and what it cannot."""

from pathlib import Path

import pytest

from pockengine.errors import FarmError
from pockengine.farm.bench.case import make_case


def test_a_model_of_ones_own_is_refused(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").touch()
    for model in ("net:small_net", str(tmp_path / "net.onnx")):
        with pytest.raises(FarmError, match=f"trains listed models .* and not {model}; train"):
            make_case(model, 4, 1)
