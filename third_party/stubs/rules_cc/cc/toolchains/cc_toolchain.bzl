"""Re-export Bazel 4's own cc_toolchain."""

cc_toolchain = native.cc_toolchain
