"""The end of a detector's TFLite file: anchors, and TFLite's op that picks boxes by scores.

Sources: Liu et al., SSD, ECCV 2016, and github.com/tensorflow/models, research/object_detection,
export_tflite_ssd_graph.py; github.com/google/automl, efficientdet, hparams_config.py and
postprocess.py. Both exports pick boxes for all classes together ("fast").
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

OP = "TFLite_Detection_PostProcess"
CLASSES = 90
"""COCO's, with gaps and without the background."""


@dataclass(frozen=True)
class BoxOptions:
    """Attributes of the op: `scales` of predicted y, x, height and width."""

    detections: int
    least_score: float
    overlap: float
    scales: tuple[float, float, float, float]

    @property
    def signature(self) -> str:
        """The op and its attributes, as TensorFlow's converter reads them from a function."""
        attributes = {
            "max_detections": f"i: {self.detections}",
            "max_classes_per_detection": "i: 1",
            "use_regular_nms": "b: false",
            "nms_score_threshold": f"f: {self.least_score}",
            "nms_iou_threshold": f"f: {self.overlap}",
            **{
                f"{name}_scale": f"f: {value}"
                for name, value in zip("yxhw", self.scales, strict=True)
            },
            "num_classes": f"i: {CLASSES}",
        }
        pairs = (f'attr {{ key: "{key}" value {{ {attributes[key]} }} }}' for key in attributes)
        return f'name: "{OP}" {" ".join(pairs)}'


SSD = BoxOptions(detections=10, least_score=1e-8, overlap=0.6, scales=(10, 10, 5, 5))
EFFICIENTDET = BoxOptions(detections=100, least_score=-math.inf, overlap=0.5, scales=(1, 1, 1, 1))


def ssd_anchors(sides: Sequence[int]) -> NDArray[np.float32]:
    """Return SSD's anchors for square maps of these sides; three on each place of the first."""
    sizes = [*np.linspace(0.2, 0.95, len(sides)), 1.0]
    shapes = [[(0.1, 1.0), (0.2, 2.0), (0.2, 0.5)]]
    for size, larger in pairwise(sizes[1:]):
        ratios = [(size, ratio) for ratio in (1.0, 2.0, 1 / 2, 3.0, 1 / 3)]
        shapes.append([*ratios, (math.sqrt(size * larger), 1.0)])
    return _anchors(sides, shapes)


def efficientdet_anchors(sides: Sequence[int]) -> NDArray[np.float32]:
    """Return EfficientDet-lite0's anchors for square maps of these sides."""
    octaves = [3.0 * 2 ** (octave / 3) for octave in range(3)]
    shapes = [list(product([x / side for x in octaves], (1.0, 2.0, 0.5))) for side in sides]
    return _anchors(sides, shapes)


def _anchors(
    sides: Sequence[int], shapes: Sequence[Sequence[tuple[float, float]]]
) -> NDArray[np.float32]:
    """Return [N, 4], centers and sizes of boxes in shares of a picture, by size and ratio."""
    found = []
    for side, boxes in zip(sides, shapes, strict=True):
        centers = [(place + 0.5) / side for place in range(side)]
        for y, x, (size, ratio) in product(centers, centers, boxes):
            found.append((y, x, size / math.sqrt(ratio), size * math.sqrt(ratio)))
    return np.array(found, np.float32)


def convert_detector(
    predict: "tf.types.experimental.ConcreteFunction",
    anchors: NDArray[np.float32],
    options: BoxOptions,
) -> bytes:
    """Return a TFLite file that picks boxes from `predict`, whose weights are constants.

    It returns boxes [1, N, 4] and scores [1, N, classes] for N anchors.
    """

    def pick(boxes: tf.Tensor, scores: tf.Tensor, anchors: tf.Tensor) -> tuple[tf.Tensor, ...]:
        shapes = ((1, options.detections, 4), *[(1, options.detections)] * 2, (1,))
        return tuple(tf.zeros(shape) for shape in shapes)  # the op computes them

    op = tf.function(pick, experimental_implements=options.signature)
    module = tf.Module()  # functions of a module are not inlined before the converter sees them
    module.detect = tf.function(
        lambda x: op(*predict(x), tf.constant(anchors)),
        input_signature=[tf.TensorSpec(x.shape, x.dtype) for x in predict.inputs],
    )
    function = module.detect.get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], module)
    converter.allow_custom_ops = True
    return bytes(converter.convert())
