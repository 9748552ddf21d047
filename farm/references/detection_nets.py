"""Detectors whose times on boards are public, in Keras, as TFLite files for the cycle model.

    python -m pockengine.farm.references.detection_nets NET FOLDER

The layers and the op that picks boxes are the published ones. Weights are random; normalizations
have the picture's own statistics, so that scores differ as much as a trained net's.
SSDLite: Sandler et al., MobileNetV2, CVPR 2018; EfficientDet: Tan et al., CVPR 2020, in the form
"lite" without squeeze-and-excitation and weighted sums.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import keras
import numpy as np
from keras import KerasTensor, layers
from numpy.typing import NDArray

from pockengine.farm.references.detection_boxes import (
    CLASSES,
    EFFICIENTDET,
    SSD,
    BoxOptions,
    convert_detector,
    efficientdet_anchors,
    ssd_anchors,
)
from pockengine.farm.references.tflite_files import freeze
from pockengine.farm.references.tflite_names import PICTURES, file_of

Stage = tuple[int, int, int, int, int]
"""Expansion, channels, blocks, stride of the first and kernel of all."""

MOBILENET_V2: tuple[Stage, ...] = (
    (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 32, 3, 2, 3), (6, 64, 4, 2, 3),
    (6, 96, 3, 1, 3), (6, 160, 3, 2, 3), (6, 320, 1, 1, 3),
)  # fmt: skip
EFFICIENTNET_LITE0: tuple[Stage, ...] = (
    (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3),
)  # fmt: skip
SSD_SIDES, SSD_ANCHORS = (19, 10, 5, 3, 2, 1), (3, 6, 6, 6, 6, 6)
FPN_SIDES, FPN_ANCHORS = (40, 20, 10, 5, 3), 9
FPN_CHANNELS, FPN_REPEATS, HEAD_DEPTH = 64, 3, 3


@dataclass(frozen=True)
class Detector:
    """A net that returns boxes [1, N, 4] and scores of classes, and what its boxes are made of."""

    build: Callable[[], keras.Model]
    anchors: NDArray[np.float32]
    options: BoxOptions


def ssdlite_mobilenet_v2() -> keras.Model:
    """Return SSDLite over MobileNetV2 at 300 x 300, with COCO's classes and the background."""
    pictures = keras.Input((300, 300, 3), batch_size=1)
    stages = _backbone(pictures, MOBILENET_V2)
    features = [stages[5][1], _convolution(stages[6][0], 1280)]
    for channels in (512, 256, 256, 128):
        reduced = _convolution(features[-1], channels // 2)
        features.append(_convolution(_depthwise(reduced, stride=2), channels))
    boxes, scores = (
        [_prediction(x, count, size) for x, count in zip(features, SSD_ANCHORS, strict=True)]
        for size in (4, 1 + CLASSES)
    )
    return _detecting(pictures, boxes, scores)


def efficientdet_lite0() -> keras.Model:
    """Return EfficientDet-lite0 at 320 x 320."""
    pictures = keras.Input((320, 320, 3), batch_size=1)
    stages = _backbone(pictures, EFFICIENTNET_LITE0)
    backbone = [stages[place][0] for place in (2, 4, 6)]
    levels = [_resampled(x) for x in backbone]
    levels.append(_halved(_resampled(backbone[-1])))
    levels.append(_halved(levels[-1]))
    # The first repeat resamples the backbone once more for the way down.
    again = [levels[0], *(_resampled(x) for x in backbone[1:]), *levels[3:]]
    for _ in range(FPN_REPEATS):
        levels = again = _pyramid(levels, again)
    return _detecting(pictures, _head(levels, 4), _head(levels, CLASSES))


NETS = {
    "efficientdet_lite0": Detector(
        efficientdet_lite0, efficientdet_anchors(FPN_SIDES), EFFICIENTDET
    ),
    "ssdlite_mobilenet_v2": Detector(ssdlite_mobilenet_v2, ssd_anchors(SSD_SIDES), SSD),
}


def _detecting(
    pictures: KerasTensor, boxes: Sequence[KerasTensor], scores: Sequence[KerasTensor]
) -> keras.Model:
    """Return a net of the predictions of all its maps."""
    logits = layers.Concatenate(1)(scores)
    return keras.Model(
        pictures, [layers.Concatenate(1)(boxes), layers.Activation("sigmoid")(logits)]
    )


def _normalized(x: KerasTensor) -> KerasTensor:
    return layers.BatchNormalization(momentum=0.0)(x)


def _convolution(
    x: KerasTensor, channels: int, kernel: int = 1, *, stride: int = 1, act: bool = True
) -> KerasTensor:
    x = layers.Conv2D(channels, kernel, stride, padding="same", use_bias=False)(x)
    x = _normalized(x)
    return layers.ReLU(6.0)(x) if act else x


def _depthwise(x: KerasTensor, kernel: int = 3, stride: int = 1) -> KerasTensor:
    x = layers.DepthwiseConv2D(kernel, stride, padding="same", use_bias=False)(x)
    return layers.ReLU(6.0)(_normalized(x))


def _backbone(x: KerasTensor, stages: Sequence[Stage]) -> list[tuple[KerasTensor, KerasTensor]]:
    """Return each stage's output, and the expansion in its first block."""
    x = _convolution(x, 32, 3, stride=2)
    found = []
    for expansion, channels, blocks, stride, kernel in stages:
        first = None
        for block in range(blocks):
            wide = _convolution(x, expansion * x.shape[-1]) if expansion > 1 else x
            first = wide if first is None else first
            y = _depthwise(wide, kernel, stride if block == 0 else 1)
            y = _convolution(y, channels, act=False)
            x = layers.Add()([x, y]) if block > 0 else y
        found.append((x, first))
    return found


def _prediction(x: KerasTensor, anchors: int, size: int) -> KerasTensor:
    return layers.Reshape((-1, size))(layers.Conv2D(anchors * size, 1)(_depthwise(x)))


def _resampled(x: KerasTensor) -> KerasTensor:
    return _convolution(x, FPN_CHANNELS, act=False)


def _halved(x: KerasTensor) -> KerasTensor:
    return layers.MaxPooling2D(3, 2, padding="same")(x)


def _joined(*inputs: KerasTensor) -> KerasTensor:
    """Add inputs of one size and convolve the sum."""
    x = layers.ReLU(6.0)(layers.Add()(list(inputs)))
    x = layers.DepthwiseConv2D(3, padding="same", use_bias=False)(x)
    return _normalized(layers.Conv2D(FPN_CHANNELS, 1)(x))


def _pyramid(levels: Sequence[KerasTensor], again: Sequence[KerasTensor]) -> list[KerasTensor]:
    """Fuse features from the coarsest level to the finest and back."""
    upward = [levels[-1]]
    for x in reversed(levels[:-1]):
        wide = layers.Resizing(*x.shape[1:3], interpolation="nearest")(upward[0])
        upward.insert(0, _joined(x, wide))
    found = [upward[0]]
    for x, wide in zip(again[1:-1], upward[1:-1], strict=True):
        found.append(_joined(x, wide, _halved(found[-1])))
    return [*found, _joined(again[-1], _halved(found[-1]))]


def _head(levels: Sequence[KerasTensor], size: int) -> list[KerasTensor]:
    """Predict by one stack of convolutions for all levels, with norms of each level's own."""
    widths = [FPN_CHANNELS] * HEAD_DEPTH + [size * FPN_ANCHORS]
    stack = [
        (layers.DepthwiseConv2D(3, padding="same", use_bias=False), layers.Conv2D(width, 1))
        for width in widths
    ]
    found = []
    for x in levels:
        for depthwise, pointwise in stack[:-1]:
            x = layers.ReLU(6.0)(_normalized(pointwise(depthwise(x))))
        y = stack[-1][1](stack[-1][0](x))
        found.append(layers.Reshape((-1, size))(y))
    return found


def main(net: str, folder: Path) -> None:
    """Write a net's TFLite file and a random picture for it."""
    detector = NETS[net]
    keras.utils.set_random_seed(0)
    model = detector.build()
    picture = np.random.default_rng(0).random(model.input_shape, np.float32)
    model(picture, training=True)
    predict = freeze(model, model.input_shape)
    np.save(folder / PICTURES, picture)
    file = convert_detector(predict, detector.anchors, detector.options)
    (folder / file_of("f32")).write_bytes(file)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write a detector as a TFLite file.")
    parser.add_argument("net", choices=NETS)
    parser.add_argument("folder", type=Path, help="an existing folder")
    arguments = parser.parse_args()
    main(arguments.net, arguments.folder)
