"""pytest_test: a test target that runs its sources under pytest."""

load("@rules_python//python:defs.bzl", "py_test")

def pytest_test(name, srcs, deps = [], args = [], data = [], **kwargs):
    """Run `srcs` under pytest; `--test_filter=EXPRESSION` becomes pytest's `-k`.

    Args:
      name: name of the target.
      srcs: files that pytest collects.
      deps: libraries, as for py_test.
      args: further arguments of pytest.
      data: files, as for py_test.
      **kwargs: the other attributes of py_test (size, tags, timeout, ...).
    """
    py_test(
        name = name,
        srcs = srcs + ["//build_defs:pytest_main.py"],
        main = "//build_defs:pytest_main.py",
        args = args + ["$(rootpath %s)" % src for src in srcs],
        data = data,
        deps = deps + ["//build_defs:bytecode", "@pypi//pytest"],
        **kwargs
    )
