"""BUILD, .bzl and WORKSPACE files look as buildifier would leave them."""

import pytest

from pockengine.tests.repo.build_files import findings
from pockengine.tests.repo.tree import files, read


def test_build_files_are_formatted() -> None:
    sources = files("BUILD", "*.bzl", "WORKSPACE")
    assert sources
    assert not [f"{path}:{found}" for path in sources for found in findings(read(path))]


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("x = ['a']\n", "1: use double quotes"),
        ("x = 1 \n", "1: trailing space or tab"),
        ("x = 1", "0: the file must end with one newline"),
        ("if x:\n  y = 1\n", "2: indent by four spaces"),
        ('x(\n    deps = [\n        ":b",\n        ":a",\n    ],\n)\n', "2: deps is not sorted"),
        ('x(deps = ["//a", ":b"])\n', "1: deps is not sorted"),
        ('x(deps = [":a", ":a"])\n', "1: deps names something twice"),
        ('x(srcs = [], name = "a")\n', "1: name comes first"),
        ("x = [\n    1,\n    2\n]\n", "4: a list over several lines ends in a comma"),
        ('load("//a:b.bzl", "d", "c")\n', "1: names loaded from //a:b.bzl are not sorted"),
        (
            'load("//b:b.bzl", "c")\nload("@a//b:b.bzl", "d")\n',
            "2: load of @a//b:b.bzl is out of order",
        ),
    ],
)
def test_unformatted_text_is_found(text: str, finding: str) -> None:
    assert finding in findings(text)


def test_formatted_text_has_no_finding() -> None:
    assert findings('load(":b.bzl", "c")\n\nc(name = "x", deps = [":a", "//b", "@c//d"])\n') == []
    assert findings("") == []
