"""Re-export Bazel 4's own cc_common."""

load("//cc:builtins.bzl", "BUILTIN_CC_COMMON")

cc_common = BUILTIN_CC_COMMON
