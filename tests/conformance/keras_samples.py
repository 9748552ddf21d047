"""Public functions of keras.ops without a sample; `keras_functions.txt` has the others'."""

NOT_COMPARED = {
    "convert_to_numpy": "needs numbers while the model is traced",
    "ctc_decode": "integers of a search through the data",
    "custom_gradient": "is tested with the models, not by a call",
    "fori_loop": "of a body that is a function: see the models",
    "jvp": "of a function, not of tensors",
    "elastic_transform": "draws random numbers",
    "nonzero": "a shape that depends on data",
    "unique": "a shape that depends on data",
}
"""Functions without a sample, with the reason."""
