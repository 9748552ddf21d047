"""Samples of keras.layers: a layer, and the leaves of `numpy_samples` that are its arguments."""

ALIASES = frozenset(
    [
        *(f"{kind}{rank}D" for kind in ("AvgPool", "MaxPool") for rank in (1, 2, 3)),
        *(f"Global{kind}Pool{rank}D" for kind in ("Avg", "Max") for rank in (1, 2, 3)),
        *(f"Convolution{rank}D{end}" for rank in (1, 2, 3) for end in ("", "Transpose")),
        *(f"SeparableConvolution{rank}D" for rank in (1, 2)),
        "InputSpec",
    ]
)
"""Aliases of other layers."""

NOT_COMPARED = {
    **dict.fromkeys(
        ("FlaxLayer", "JaxLayer", "TorchModuleWrapper"), "a model of another framework"
    ),
    **dict.fromkeys(
        ("HashedCrossing", "Hashing", "IntegerLookup", "StringLookup", "TextVectorization"),
        "strings, which are looked up first",
    ),
    **dict.fromkeys(("Layer", "Wrapper", "InputLayer", "Pipeline"), "not a layer by itself"),
    **dict.fromkeys(
        ("GRUCell", "LSTMCell", "SimpleRNNCell", "StackedRNNCells"), "part of an RNN's sample"
    ),
    "MaxNumBoundingBoxes": "bounding boxes of a data set",
    "TFSMLayer": "a saved model, which has its own reader",
}
"""Layers without a sample, with the reason."""
