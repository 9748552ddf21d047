"""Repository rule for the Python interpreter: one found on this machine, without its packages."""

# The first that is found is used. Wheels are locked for all of them.
PYTHON_VERSIONS = ["3.11", "3.12", "3.13"]

_PROBE = "import pip, sys; print('%d.%d' % sys.version_info[:2]); print(sys.executable)"

# -P: Python would put a program's own folder first on its path, where cli/inspect.py stands in for
# the standard library's module.
_LAUNCHER = """\
#!/bin/sh
exec "${0%/*}/venv/bin/python" -P "$@"
"""

_BUILD = """\
load("@rules_python//python:defs.bzl", "py_runtime", "py_runtime_pair")

package(default_visibility = ["//visibility:public"])

py_runtime(
    name = "py3_runtime",
    files = [
        "venv/bin/python",
        "venv/pyvenv.cfg",
    ],
    interpreter = "python",
    python_version = "PY3",
    stub_shebang = "#!/usr/bin/env python3",
)

py_runtime_pair(
    name = "py_runtime_pair",
    py2_runtime = None,
    py3_runtime = ":py3_runtime",
)

# Without target constraints: a py_binary that is configured for a device still runs on this machine.
toolchain(
    name = "toolchain",
    toolchain = ":py_runtime_pair",
    toolchain_type = "@bazel_tools//tools/python:toolchain_type",
)
"""

# An attribute of the repository rules that run a Python program, read by find_python.
PYTHON_ATTR = attr.label(doc = "The interpreter; by default one of this machine.")

def watched(rctx, label):
    """Return the path of a file, and run the repository rule again when it changes.

    Args:
      rctx: the repository context.
      label: the file's label.

    Returns:
      Its path. Up to Bazel 7 asking for it is enough; Bazel 8 and later watch what they are told to.
    """
    path = rctx.path(label)
    if hasattr(rctx, "watch"):
        rctx.watch(path)
    return path

def find_python(rctx):
    """Find a CPython that has pip, of one of PYTHON_VERSIONS, in their order.

    Args:
      rctx: the repository context; its attribute `python` names another interpreter.

    Returns:
      The real path of the interpreter, past shims and links.
    """
    if rctx.attr.python:
        return rctx.path(rctx.attr.python)
    found, last = {}, ""
    for name in ["python" + version for version in PYTHON_VERSIONS] + ["python3"]:
        for path in [rctx.which(name), "/usr/bin/" + name]:
            probe = rctx.execute([path, "-c", _PROBE]) if path else None
            if probe and probe.return_code == 0:
                version, executable = probe.stdout.strip().split("\n")
                found.setdefault(version, executable)
            elif probe:
                last = probe.stderr.strip()
    for version in PYTHON_VERSIONS:
        if version in found:
            return found[version]
    fail("no CPython %s with pip on this machine; apt-get install python3 python3-pip python3-venv; /usr/bin/python3 said: %s" %
         (" or ".join(PYTHON_VERSIONS), last))

def _local_python_impl(rctx):
    # An empty virtual environment is the interpreter without the machine's site-packages,
    # which would otherwise leak into every test.
    base = find_python(rctx)
    made = rctx.execute([base, "-I", "-m", "venv", "--without-pip", "venv"])
    if made.return_code:
        fail("%s -m venv failed (apt-get install python3-venv):\n%s%s" % (base, made.stdout, made.stderr))

    # The `command` line contains this folder's path; without it, clones share test results.
    settings = rctx.read("venv/pyvenv.cfg").split("\n")
    settings = [line for line in settings if not line.startswith("command")]
    rctx.file("venv/pyvenv.cfg", "\n".join(settings), executable = False)
    rctx.file("python", _LAUNCHER)
    rctx.file("BUILD", _BUILD, executable = False)

local_python = repository_rule(
    implementation = _local_python_impl,
    doc = "Defines @NAME//:toolchain, a Python toolchain of this machine's interpreter.",
    attrs = {"python": PYTHON_ATTR},
)
