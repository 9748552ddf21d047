"""Compile time grows as the graph does: no pass looks at the whole graph for each node."""

from pockengine.tests.compiler.large_graphs import pass_seconds

SLACK = 2.5
"""What a busy machine may add; one quadratic pass of the slowest three takes more."""


def test_compile_time_is_not_quadratic_in_the_graph() -> None:
    small, before, _ = pass_seconds(1000)
    large, after, _ = pass_seconds(6000)
    assert after < SLACK * before * large / small
