"""The file of an artifact, and its signatures: as Google's guide to on-device training has them.

model.tflite     a signature for each entry, and those below
nodes.json       for each signature its operators, and of which node of ours, with the user's layer
bindings.json    where frozen params lie, and what inputs that are read as indices may hold
"""

MODEL, NODES = "model.tflite", "nodes.json"
SAVE, RESTORE, CONFIGURE = "save", "restore", "configure"
"""Give out what training writes, take it in, and set what controls a step."""


def signature_of(entry: str) -> str:
    """Name of an entry's signature; those of other sizes end in @SIZE."""
    kind, at, size = entry.partition("@")
    return f"{'infer' if kind == 'predict' else kind}{at}{size}"
