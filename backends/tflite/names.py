"""An artifact's files, and the signatures, as in Google's guide to on-device training.

model.tflite a signature for each entry, and those below nodes.json for each signature its
operators, with our nodes and the user's layers bindings.json offsets of frozen params, and valid
ranges of index inputs
"""

MODEL, NODES = "model.tflite", "nodes.json"
SAVE, RESTORE, CONFIGURE = "save", "restore", "configure"
"""Return the trained params, restore them, and set the controls of a step."""


def signature_of(entry: str) -> str:
    """Name of an entry's signature; variants of other sizes end in @SIZE."""
    kind, at, size = entry.partition("@")
    return f"{'infer' if kind == 'predict' else kind}{at}{size}"
