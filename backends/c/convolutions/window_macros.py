"""A convolution's window as macros of the integer product templates."""

from pockengine.backends.native.numbers import whole
from pockengine.backends.window import ConvWindow


def window_macros(window: ConvWindow, backward: bool) -> dict[str, object]:
    """The window macros; for the input gradient, dy is the source."""
    source, result = window.size, window.output
    if backward:
        source, result = result, source
    return {
        "PE_IMAGES": whole(window.images),
        "PE_SOURCE_H": whole(source[0]),
        "PE_SOURCE_W": whole(source[1]),
        "PE_SOURCE_C": whole(window.features if backward else window.channels),
        "PE_OUT_H": whole(result[0]),
        "PE_OUT_W": whole(result[1]),
        "PE_GROUPS": whole(window.groups),
        "PE_CHANNELS": whole(window.group_channels),
        "PE_N": whole(window.group_features),
        "PE_TAPS_H": window.kernel[0],
        "PE_TAPS_W": window.kernel[1],
        "PE_STEP_H": window.stride[0],
        "PE_STEP_W": window.stride[1],
        "PE_GAP_H": window.dilation[0],
        "PE_GAP_W": window.dilation[1],
        "PE_TOP": window.before[0],
        "PE_LEFT": window.before[1],
    }
