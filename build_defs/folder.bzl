"""folder: all targets of a folder of Python, a line for each."""

load("@rules_python//python:defs.bzl", "py_binary", "py_library")
load("//build_defs:lint.bzl", "checked_files")
load("//build_defs:pytest.bzl", "pytest_test")

def folder(
        libraries = {},
        programs = {},
        tests = {},
        remaining = [],
        srcs = {},
        data = {},
        size = "medium",
        sizes = {},
        tags = {},
        timeouts = {},
        users = []):
    """Declare the libraries, programs and tests of a folder, and the files that checks read.

    Names of targets or files may stand in a tuple: buildifier keeps that on one line. A dependency
    that another brings along need not be named; tests/repo/test_deps.py finds what is missing.

    Args:
      libraries: deps of each py_library by its name; one named conftest goes with all tests.
      programs: deps of each py_binary.
      tests: deps of each pytest_test.
      remaining: deps of the pytest_test `remaining`, if any. It runs each test_*.py that no other test
        names, in one process, which imports their packages once.
      srcs: sources of the targets NAME that are made of more than NAME.py.
      data: files that a target reads when it runs.
      size: size of the tests.
      sizes: names of tests that have another, by it.
      tags: tags of tests.
      timeouts: names of tests by their timeout, where it is not that of their size.
      users: packages that may depend on it with their own, beside this one and tests, also those
        of studies. What is in tests/ serves tests alone.
    """
    package = native.package_name()
    testonly = package.startswith("tests/")
    visibility = [_subpackages(user) for user in ["//studies/tests", "//tests"] + list(users)]
    if not testonly:
        visibility.append(_subpackages("//" + package))
    checked_files()
    for name, deps in libraries.items():
        py_library(
            name = name,
            testonly = testonly,
            srcs = list(srcs.get(name, [name + ".py"])),
            data = list(data.get(name, [])),
            visibility = visibility,
            deps = list(deps),
        )
    for name, deps in programs.items():
        sources = list(srcs.get(name, [name + ".py"]))
        py_binary(
            name = name,
            testonly = testonly,
            srcs = sources,
            data = list(data.get(name, [])),
            main = sources[0],
            visibility = visibility,
            deps = list(deps),
        )
    conftest = [":conftest"] if "conftest" in libraries else []
    size_of = {name: size for size, names in sizes.items() for name in names}
    timeout_of = {name: timeout for timeout, names in timeouts.items() for name in names}
    files = {name: list(srcs.get(name, [name + ".py"])) for name in tests}
    if remaining:
        named = [source for sources in files.values() for source in sources]
        tests = dict(tests, remaining = remaining)
        files["remaining"] = native.glob(["test_*.py"], exclude = named)
    for name, deps in tests.items():
        pytest_test(
            name = name,
            size = size_of.get(name, size),
            timeout = timeout_of.get(name),
            srcs = files[name],
            data = list(data.get(name, [])),
            tags = list(tags.get(name, [])),
            deps = list(deps) + conftest,
        )

def _subpackages(package):
    # The root alone, not all that is under it.
    return "//:__pkg__" if package == "//" else package + ":__subpackages__"
