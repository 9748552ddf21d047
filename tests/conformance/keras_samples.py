"""Public functions of keras.ops without a sample in `keras_functions.txt`."""

NOT_COMPARED = {
    "convert_to_numpy": "needs values while the model is traced",
    "ctc_decode": "integer results of a search through the data",
    "custom_gradient": "tested with the models, not by a call",
    "fori_loop": "takes a body function: see the models",
    "jvp": "takes a function, not tensors",
    "elastic_transform": "draws random numbers",
    "nonzero": "a shape that depends on data",
    "unique": "a shape that depends on data",
}
"""Functions without a sample, with the reason."""
