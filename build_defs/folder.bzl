"""folder: all targets of a folder of Python; what is not named follows from its files."""

load("@rules_python//python:defs.bzl", "py_binary", "py_library")
load("//build_defs:deps.bzl", "DEPS")
load("//build_defs:lint.bzl", "CHECKED", "checked_files")
load("//build_defs:pytest.bzl", "pytest_test")
load("//build_defs:users.bzl", "USERS")

def folder(
        libraries = [],
        programs = [],
        tests = [],
        srcs = {},
        deps = {},
        test_deps = [],
        data = {},
        tags = {},
        public = [],
        checked = CHECKED):
    """Declare the libraries, programs and tests of a folder, and the files that checks read.

    A folder of sources is one py_library of its own name: all files, also of folders below, that no
    other target has. If a program has that name, the library is `lib`, with all files. In a folder of
    tests each other file is a py_library; `conftest` goes with all tests. A test_*.py that any argument
    names has a process of its own; the pytest_test `remaining` runs the others in one, which imports
    their packages once.

    Deps are the owners of what the sources import, as deps.bzl lists them
    (`python -m pockengine.tests.repo.deps` writes it); users.bzl says who may depend on a folder.
    Names may stand in a tuple: buildifier keeps that on one line.

    Args:
      libraries: names of further py_librarys.
      programs: names of py_binarys.
      tests: names of pytest_tests that no other argument names.
      srcs: sources of the targets NAME that are made of other files than NAME.py, the main one first;
        a name in no other list is a test's if it starts with test_, else a library's.
      deps: what targets need and no import shows: modules that are loaded by name, and the wheels of
        frameworks, which a process gets from one set.
      test_deps: the same for all tests of the folder.
      data: files that a target reads when it runs.
      tags: tags of tests.
      public: names of libraries that every repository may use.
      checked: globs of the files that tests/repo reads.
    """
    package = native.package_name()
    of_tests = "tests" in package.split("/")
    named = list(tests)
    for argument in (deps, data, tags):
        named += [name for name in argument if name.startswith("test_")]
    files = {name: [name + ".py"] for name in list(libraries) + list(programs) + named}
    files.update({name: list(sources) for name, sources in srcs.items()})
    tests = [name for name in files if name in tests or name.startswith("test_")]
    libraries = [name for name in files if name not in programs and name not in tests]
    claimed = [file for sources in files.values() for file in sources]
    if of_tests:
        files["remaining"] = native.glob(["test_*.py"], allow_empty = True, exclude = claimed)
        tests += ["remaining"] if files["remaining"] else []
        loose = native.glob(["*.py"], allow_empty = True, exclude = ["test_*.py"] + claimed)
        files.update({file[:-len(".py")]: [file] for file in loose})
        libraries += [file[:-len(".py")] for file in loose]
    elif package:
        own = package.split("/")[-1]
        if own in programs:
            own = "lib"
            claimed = []
        if own not in files:
            files[own] = native.glob(["**/*.py"], allow_empty = True, exclude = claimed)
            libraries += [own] if files[own] else []

    checked_files(checked)
    common = {
        name: {
            "name": name,
            "srcs": sources,
            "data": list(data.get(name, [])),
            "deps": DEPS.get(package, {}).get(name, []) + list(deps.get(name, [])),
        }
        for name, sources in files.items()
    }
    visibility = _visibility(package, of_tests)
    for name in libraries:
        py_library(
            testonly = of_tests,
            # The folder above the root, where `import pockengine` finds it: not every version of the
            # Python rules adds it.
            imports = [] if package else [".."],
            visibility = ["//visibility:public"] if name in public else visibility,
            **common[name]
        )
    for name in programs:
        py_binary(
            testonly = of_tests,
            main = files[name][0],
            visibility = visibility,
            **common[name]
        )
    test_deps = list(test_deps) + (["//%s:conftest" % package] if "conftest" in libraries else [])
    for name in tests:
        labels = common[name]["deps"] + test_deps
        common[name]["deps"] = list({label: None for label in labels}.keys())
        pytest_test(
            tags = list(tags.get(name, [])),
            **common[name]
        )

def _visibility(package, of_tests):
    """Let tests, the users of the folder, and the folder itself depend on it; on tests, tests alone."""
    if not package:
        return ["//:__subpackages__"]
    users = []
    parts = package.split("/")
    for end in range(len(parts)):
        users = USERS.get("/".join(parts[:end + 1]), users)
    users = ["//studies/tests", "//tests"] + users + ([] if of_tests else ["//" + package])

    # "//" is the root alone, not all that is under it.
    return ["//:__pkg__" if user == "//" else user + ":__subpackages__" for user in users]
