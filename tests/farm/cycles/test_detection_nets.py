"""The detectors used for calibration have the published size, and their files run."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tensorflow", reason="the nets are built in Keras")
import tensorflow as tf

from pockengine.farm.cycles.calibration import figures
from pockengine.farm.references.detection_nets import NETS, main
from pockengine.farm.references.tflite_names import PICTURES, file_of


# EfficientDet's paper, table 1, counts D0 with squeeze-and-excitation: 3.9 M; lite0 has 3.2 M.
# MobileNetV2's, table 6: 4.3 M for SSDLite.
@pytest.mark.parametrize(
    ("net", "millions"), [("efficientdet_lite0", 3.2), ("ssdlite_mobilenet_v2", 4.3)]
)
def test_nets_have_the_published_number_of_weights(net: str, millions: float) -> None:
    assert NETS[net].build().count_params() == pytest.approx(millions * 1e6, rel=0.06)


def test_file_has_the_published_size_and_finds_boxes(tmp_path: Path) -> None:
    main("efficientdet_lite0", tmp_path)
    file = tmp_path / file_of("f32")
    interpreter = tf.lite.Interpreter(str(file))
    interpreter.allocate_tensors()
    interpreter.set_tensor(
        interpreter.get_input_details()[0]["index"], np.load(tmp_path / PICTURES)
    )
    interpreter.invoke()
    shapes = {tuple(output["shape"]) for output in interpreter.get_output_details()}

    # "The input model file size (MB): 13.6828" in the log that calibration.toml cites.
    assert file.stat().st_size == pytest.approx(13.6828e6, rel=0.001)
    assert shapes == {(1, 100, 4), (1, 100), (1,)}


def test_figures_name_nets_that_exist() -> None:
    assert {figure.net for figure in figures() if figure.net} == set(NETS)
