"""Compile time grows linearly with the graph: no pass scans the whole graph for each node."""

from pockengine.tests.compiler.large_graphs import pass_seconds

SLACK = 2.5
"""Allowance for a busy machine; a single quadratic pass among the slowest three exceeds it."""


def test_compile_time_is_not_quadratic_in_the_graph() -> None:
    small, before, _ = pass_seconds(1000)
    large, after, _ = pass_seconds(6000)
    assert after < SLACK * before * large / small
