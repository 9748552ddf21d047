"""The last record of each figure, out of all that were stored."""

from collections.abc import Sequence

from pockengine.farm.results.regression import key_of
from pockengine.farm.results.results import Record


def newest(records: Sequence[Record]) -> list[Record]:
    """Return the last record of each figure, with related ones adjacent."""
    last = {}
    for record in records:
        kernel = record.note if record.metric == "kernel_us" else None  # one record for each
        last[(key_of(record), kernel)] = record
    return sorted(
        last.values(),
        key=lambda x: (x.device, x.model, x.batch, x.scheme, x.metric, x.engine, x.threads),
    )
