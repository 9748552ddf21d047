"""Kernels over whole rows (the last dimension): softmax, row norms."""

import math
from dataclasses import dataclass

from pockengine.backends.c.tile import machine_of
from pockengine.backends.space import lanes_for
from pockengine.compiler.ir import Value
from pockengine.devices.schema import Device


@dataclass(frozen=True)
class RowCut:
    """Number of rows, columns of each, and lanes of a vector."""

    rows: int
    columns: int
    lanes: int

    @property
    def label(self) -> str:
        """The split among threads, and the lanes of a vector."""
        return f"ROWS x{self.lanes}"


def cut_rows(value: Value, device: Device) -> RowCut:
    """Partition a value into rows for a device."""
    columns = value.shape[-1]
    lanes = lanes_for(columns, machine_of(device).lanes)
    return RowCut(math.prod(value.shape[:-1]), columns, lanes)
