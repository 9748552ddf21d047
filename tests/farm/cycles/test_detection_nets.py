"""The detectors of the calibration have the published number of weights."""

import pytest

pytest.importorskip("tensorflow", reason="the nets are built in Keras")

from pockengine.farm.cycles.calibration import figures
from pockengine.farm.references.detection_nets import NETS


# EfficientDet's paper, table 1, counts D0 with squeeze-and-excitation: 3.9 M; lite0 has 3.2 M.
# MobileNetV2's, table 6: 4.3 M for SSDLite.
@pytest.mark.parametrize(
    ("net", "millions"), [("efficientdet_lite0", 3.2), ("ssdlite_mobilenet_v2", 4.3)]
)
def test_net_has_the_published_number_of_weights(net: str, millions: float) -> None:
    assert NETS[net]().count_params() == pytest.approx(millions * 1e6, rel=0.06)


def test_figures_name_nets_that_exist() -> None:
    assert {figure.net for figure in figures() if figure.net} == set(NETS)
