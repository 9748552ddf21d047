"""Re-export Bazel 4's own Python rules, as rules_python 0.x does.

`--override_repository=rules_python=PATH` puts the upstream rules in this place.
"""

load("@bazel_tools//tools/python:toolchain.bzl", _py_runtime_pair = "py_runtime_pair")

py_binary = native.py_binary
py_library = native.py_library
py_runtime = native.py_runtime
py_runtime_pair = _py_runtime_pair
py_test = native.py_test
