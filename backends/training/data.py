"""Data for `fit`, `evaluate` and `predict`.

- a folder of pictures: `Pictures`
- rows in memory: a dict of arrays [N, ...] by the inputs' names, a tuple of them in the inputs'
  order, or a single array
- a stream of batches: a PyTorch DataLoader, a tf.data.Dataset, a list or any other iterable of
  dicts and tuples, or a function that returns one
- a source of its own, which makes each batch when the step before has been trained

No framework is imported: tensors are recognized by their methods.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from pockengine.backends.augmentation import AS_THEY_ARE, Augmentation
from pockengine.backends.training.batch import DataSource
from pockengine.backends.training.pictures import Pictures, read_folder
from pockengine.backends.training.rows import Rows
from pockengine.backends.training.signature import Signature
from pockengine.backends.training.stream import BatchStream
from pockengine.errors import RuntimeFailure


def open_data(
    signature: Signature,
    data: Any,
    entry: str,
    *,
    batch: int | None = None,
    shuffle: bool | None = False,
    augmentation: Augmentation = AS_THEY_ARE,
) -> DataSource:
    """Return data as a source of batches for an entry; RuntimeFailure names a mismatch.

    `batch` is the number of rows, if it is variable; by default the largest. `shuffle=None` means
    True for rows; a stream keeps its own order, and its images are not augmented.
    """
    if isinstance(data, DataSource):
        return data
    pictures = isinstance(data, Pictures)
    if not (isinstance(data, Mapping | tuple) or pictures or hasattr(data, "shape")):
        changed = shuffle or augmentation != AS_THEY_ARE
        return _stream(signature, data, entry, batch=batch, changed=changed)
    if batch is not None:
        _check_batch(signature, batch)
    opened = read_folder(signature, data, entry) if pictures else signature.named(data, entry)
    arrays: Mapping[str, Any] = opened
    scalars = [name for name, array in arrays.items() if not array.ndim]
    if scalars or not arrays:
        raise RuntimeFailure(
            f"{', '.join(scalars) or 'what the entry reads'} has no rows; give arrays [N, ...]"
        )
    order = True if shuffle is None else shuffle
    return Rows(signature, arrays, batch, shuffled=order, augmentation=augmentation)


def _stream(
    signature: Signature, data: Any, entry: str, batch: int | None, changed: object
) -> BatchStream:
    if isinstance(data, str | bytes) or not (callable(data) or isinstance(data, Iterable)):
        raise RuntimeFailure(
            f"data of the type {type(data).__name__} cannot be read; give a dict or tuple of "
            "arrays, a DataLoader, a tf.data.Dataset, an iterable of batches, or "
            "pockengine.Pictures(FOLDER)"
        )
    if changed or batch is not None:
        raise RuntimeFailure(
            "batches that come one by one have their own size and order; shuffle, cut and "
            "augment them where they are made, or give arrays"
        )
    return BatchStream(signature, data, entry)


def _check_batch(signature: Signature, batch: int) -> None:
    if not signature.varies and batch != signature.batch:
        raise RuntimeFailure(
            f"{signature.name} was compiled for batches of {signature.batch}, not {batch}; compile "
            "it for a pockengine.Range of sizes"
        )
    if not signature.smallest <= batch <= signature.batch:
        raise RuntimeFailure(
            f"batch is {batch}; {signature.name} takes {signature.low} to {signature.batch}"
        )
