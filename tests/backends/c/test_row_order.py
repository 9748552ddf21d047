"""The order of the data's rows: equal in C and Python, each row once, and uniformly distributed."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from pockengine.backends.native.runtime_files import runtime_folders
from pockengine.backends.row_order import RowOrder
from pockengine.errors import RuntimeFailure
from pockengine.tests.backends.c.harness import COMMON, SANITIZED, WARNINGS

COUNTS = [*range(1, 70), 100, 255, 256, 257, 1000, 4095, 4096, 4097, 50000]
FAR = [(1 << 20) + 1, (1 << 31) - 1, (1 << 32) + 5, (1 << 40) + 12345, (1 << 62) - 1, 1 << 62]

PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include "pe_row_order.h"
int main(int count, char **arguments) {
    if (count != 6) {
        return 1;
    }
    const int64_t rows = strtoll(arguments[1], NULL, 10), epoch = strtoll(arguments[3], NULL, 10);
    const uint32_t seed = (uint32_t)strtoul(arguments[2], NULL, 10);
    const int64_t first = strtoll(arguments[4], NULL, 10), last = strtoll(arguments[5], NULL, 10);
    for (int64_t place = first; place < last; place++) {
        printf("%lld\\n", (long long)pe_shuffled_row(rows, seed, epoch, place));
    }
    return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("order")
    source, path = folder / "order.c", folder / "order"
    source.write_text(PROGRAM)
    includes = [f"-I{each}" for each in runtime_folders()]
    command = ["gcc", *COMMON, *WARNINGS, *SANITIZED, *includes, str(source), "-o", str(path)]
    subprocess.run(command, check=True)
    return path


def rows_in_c(program: Path, order: RowOrder, epoch: int, first: int, last: int) -> list[int]:
    numbers = (order.rows, order.seed, epoch, first, last)
    command = [str(program), *map(str, numbers)]
    return [int(n) for n in subprocess.run(command, capture_output=True, check=True).stdout.split()]


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 17, 64, 1000, *FAR])
def test_c_and_python_agree(program: Path, rows: int) -> None:
    for seed, epoch in [(0, 0), (7, 0), (7, 1), ((1 << 32) - 1, (1 << 33) + 3)]:
        order = RowOrder(rows, seed, shuffled=True)
        for first in {0, rows // 2, max(0, rows - 50)}:
            last = min(first + 50, rows)
            expected = order.rows_at(epoch, first, last - first)
            assert rows_in_c(program, order, epoch, first, last) == expected.tolist()


@pytest.mark.parametrize("rows", COUNTS)
def test_every_row_comes_once(rows: int) -> None:
    for seed in range(3):
        order = RowOrder(rows, seed, shuffled=True)
        assert sorted(order.rows_at(seed, 0, rows)) == list(range(rows))


@pytest.mark.parametrize("rows", [2, 3, 5, 10, 50])
def test_no_row_is_favored(rows: int) -> None:
    """Pearson's chi-square of the row at an index, over seeds and over epochs, within 5 sigma."""
    draws = 600
    for place in (0, rows - 1):
        by_seed = [RowOrder(rows, s, True).rows_at(0, place, 1)[0] for s in range(draws)]
        by_epoch = [RowOrder(rows, 3, True).rows_at(e, place, 1)[0] for e in range(draws)]
        for found in (by_seed, by_epoch):
            counts = np.bincount(found, minlength=rows)
            chi = float(np.sum((counts - draws / rows) ** 2) * rows / draws)
            assert chi < rows - 1 + 5 * np.sqrt(2 * (rows - 1))


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    orders = [
        tuple(RowOrder(50, seed, True).rows_at(epoch, 0, 50)) for seed in (1, 2) for epoch in (0, 1)
    ]
    assert len(set(orders)) == 4


def test_neighbors_are_parted() -> None:
    """Neighboring rows are neighbors in an epoch only by chance."""
    order = RowOrder(10000, 5, shuffled=True).rows_at(0, 0, 10000)
    assert np.count_nonzero(np.diff(order) == 1) < 10
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.05


def test_without_a_shuffle_rows_keep_their_order() -> None:
    assert RowOrder(5, 3).rows_at(2, 1, 3).tolist() == [1, 2, 3]


def test_places_outside_of_an_epoch_are_refused() -> None:
    with pytest.raises(RuntimeFailure, match="5 rows has no places 3 to 6"):
        RowOrder(5).rows_at(0, 3, 4)
    with pytest.raises(RuntimeFailure, match="1 to 2\\^62 rows, not 0"):
        RowOrder(0)
