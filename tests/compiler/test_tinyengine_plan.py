"""The planner on TinyEngine's training graph, compared with TinyEngine's figure."""

import os
from pathlib import Path

import pytest

from pockengine.compiler.memory.plan import arena_size, lower_bound, pack
from pockengine.tests.compiler.tinyengine import buffers_of

GRAPH = "weights/mcunet_int8/tte_49kb_int8_graph.json"
TINYENGINE_BYTES = 215_424
"""Peak SRAM that TinyEngine's scheduler reports for this graph."""


@pytest.mark.skipif("POCKENGINE_DATA" not in os.environ, reason="POCKENGINE_DATA is not set")
def test_tinyengine_graph_needs_less_than_with_its_own_planner() -> None:
    buffers = buffers_of(Path(os.environ["POCKENGINE_DATA"]) / GRAPH)
    offsets = pack(buffers)
    for one in offsets:
        for other in offsets:
            apart = offsets[one] + one.size <= offsets[other] or (
                offsets[other] + other.size <= offsets[one]
            )
            assert one is other or apart or not one.overlaps(other)
    assert arena_size(offsets) <= 1.01 * lower_bound(buffers)
    assert arena_size(offsets) <= TINYENGINE_BYTES
