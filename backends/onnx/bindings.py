"""The files of an artifact's models; `runtimes/bindings.py` has what is read beside them.

train.onnx ...   the entries; inputs are data, then written params, outputs results and NEXT
train.update.onnx ...   what the backend qnn keeps on the CPU of an entry; it reads CUT of the other
constants.bin    frozen params and large constants, which all the models refer to
"""

CONSTANTS = "constants.bin"
NEXT = "next."
"""Begins the names of outputs that are new contents of params."""
CUT = "cut."
"""Begins the names of an entry's outputs that its updates read."""


def model_name(entry: str) -> str:
    """File name of an entry's model."""
    return f"{entry}.onnx"


def update_name(entry: str) -> str:
    """Name of the model that makes an entry's updates, where these have one of their own."""
    return f"{entry}.update"
