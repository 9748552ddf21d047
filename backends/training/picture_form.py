"""Decode images to a program's input format, as the runner does (pe_picture*.c).

PNG files give the runner's numbers bit for bit. JPEG decoders of Pillow and the runner round
differently: most samples are equal, and others differ by 1 to 3 of 255.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from pockengine.compiler.ir.types import F32, I32, I64, TensorType
from pockengine.errors import RuntimeFailure

CHANNELS = {1: "L", 3: "RGB"}
FORMATS = ("PNG", "JPEG")
"""Formats that the runner reads, by Pillow's names."""
_ORIENTATION = 0x0112
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What turns a picture of each EXIF orientation upright."""


@dataclass(frozen=True)
class PictureForm:
    """A program's image input, [B, C, H, W] or [B, H, W, C] f32, and its labels.

    A pixel p of 0 to 255 becomes (p / 255 - mean) / spread, each one number or one per channel.
    `target` is None if the program reads no labels.
    """

    name: str
    channels_first: bool
    size: tuple[int, int]
    channels: int
    mean: tuple[float, ...]
    spread: tuple[float, ...]
    target: str | None
    labels: TensorType | None

    def __post_init__(self) -> None:
        for numbers in (self.mean, self.spread):
            if len(numbers) not in (1, self.channels):
                raise RuntimeFailure(
                    f"{len(numbers)} numbers for {self.channels} channels; give one, or one each"
                )
        if not all(number > 0 for number in self.spread):
            raise RuntimeFailure(f"pixels are divided by the spread; {self.spread} has a 0 or less")

    @property
    def row(self) -> tuple[int, ...]:
        """Shape of one image's row."""
        return (self.channels, *self.size) if self.channels_first else (*self.size, self.channels)

    def read(self, path: Path) -> np.ndarray:
        """Return an image's row: upright, scaled to cover the size, and center-cropped.

        RuntimeFailure, with the reason, for a file that cannot be decoded.
        """
        try:
            with Image.open(path, formats=FORMATS) as file:
                upright = _converted(_turned(file), CHANNELS[self.channels])
            picture = fitted(upright, self.size)
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            unknown = isinstance(error, UnidentifiedImageError)
            raise RuntimeFailure(f"{path}: {'it is no picture' if unknown else error}") from error
        pixels = np.asarray(picture, np.float32).reshape(*self.size, self.channels)
        mean, spread = (np.asarray(each, np.float32) for each in (self.mean, self.spread))
        scaled = (pixels / np.float32(255) - mean) / spread
        return np.ascontiguousarray(scaled.transpose(2, 0, 1) if self.channels_first else scaled)


def picture_form(
    name: str,
    inputs: Mapping[str, TensorType],
    mean: Sequence[float] = (0.0,),
    spread: Sequence[float] = (1.0,),
) -> PictureForm:
    """Find the image input of a program; RuntimeFailure if there is none."""
    labels = [(n, t) for n, t in inputs.items() if t.dtype in (I64, I32) and len(t.shape) == 1]
    for input_, type_ in inputs.items():
        if type_.dtype is not F32 or len(type_.shape) != 4:
            continue
        first = type_.shape[1] in CHANNELS
        if first or type_.shape[3] in CHANNELS:
            size, channels = (
                (type_.shape[2:], type_.shape[1]) if first else (type_.shape[1:3], type_.shape[3])
            )
            target, of_labels = labels[0] if labels else (None, None)
            return PictureForm(
                input_,
                channels_first=first,
                size=(size[0], size[1]),
                channels=channels,
                mean=tuple(mean),
                spread=tuple(spread),
                target=target,
                labels=of_labels,
            )
    shown = ", ".join(f"{input_} {type_}" for input_, type_ in inputs.items())
    raise RuntimeFailure(
        f"{name} trains on no pictures: they are f32 [B, C, H, W] or [B, H, W, C] with 1 "
        f"or 3 channels, and it reads {shown or 'nothing'}"
    )


def fitted(picture: Image.Image, size: tuple[int, int]) -> Image.Image:
    """Scale an image to cover (height, width) and center-crop it: rows first, then columns.

    Pillow's own order depends on its version; this is the runner's.
    """
    height, width = size
    is_, target = picture.width / picture.height, width / height
    wide = target * picture.height if is_ > target else float(picture.width)
    high = picture.width / target if is_ < target else float(picture.height)
    left, top = (picture.width - wide) * 0.5, (picture.height - high) * 0.5
    bilinear = Image.Resampling.BILINEAR
    across = (left, 0, left + wide, picture.height)
    lines = picture.resize((width, picture.height), bilinear, box=across)
    return lines.resize((width, height), bilinear, box=(0, top, width, top + high))


def _turned(picture: Image.Image) -> Image.Image:
    """Turn an image upright by its EXIF data, as the runner does; XMP is not read."""
    picture.load()  # PNG files may end with it
    exif = Image.Exif()
    exif.load(picture.info.get("exif", b""))
    turn = _UPRIGHT.get(exif.get(_ORIENTATION))
    return picture if turn is None else picture.transpose(turn)


def _converted(picture: Image.Image, mode: str) -> Image.Image:
    """Return an image as gray or RGB; 16-bit samples keep their upper 8 bits."""
    if picture.mode.startswith("I;16"):
        picture = Image.fromarray((np.asarray(picture) >> 8).astype(np.uint8))
    elif picture.mode in ("CMYK", "YCCK"):
        raise ValueError("its channels are neither gray nor three colors")
    return picture.convert(mode)
