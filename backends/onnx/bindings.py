"""The files of an artifact's models; `runtimes/bindings.py` has their metadata.

train.onnx ... the entries; inputs are data, then written params, outputs results and NEXT
train.update.onnx ... the part of an entry that the backend qnn runs on the CPU; it reads CUT
outputs constants.bin frozen params and large constants, which all the models refer to
"""

CONSTANTS = "constants.bin"
NEXT = "next."
"""Prefix of output names for new contents of params."""
CUT = "cut."
"""Prefix of output names that an entry's updates read."""


def model_name(entry: str) -> str:
    """File name of an entry's model."""
    return f"{entry}.onnx"


def update_name(entry: str) -> str:
    """Name of an entry's update model, if it has one."""
    return f"{entry}.update"
