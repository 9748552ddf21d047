"""The files of an artifact's models; `runtimes/bindings.py` has what is read beside them.

train.onnx ...   the entries; inputs are data, then written params, outputs results and NEXT
constants.bin    frozen params and large constants, which all the models refer to
"""

CONSTANTS = "constants.bin"
NEXT = "next."
"""Begins the names of outputs that are new contents of params."""


def model_name(entry: str) -> str:
    """File name of an entry's model."""
    return f"{entry}.onnx"
