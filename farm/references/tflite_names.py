"""Names of TFLite's files of a job: the side that converts and the one that counts agree."""

PICTURES = "pictures.npy"
TYPES = ("f32", "int8")


def file_of(dtype: str) -> str:
    """Return the name of the net's file in a type."""
    return f"{dtype}.tflite"
