"""Re-export Bazel 4's own CcToolchainConfigInfo."""

load("//cc:builtins.bzl", "BUILTIN_CC_TOOLCHAIN_CONFIG_INFO")

CcToolchainConfigInfo = BUILTIN_CC_TOOLCHAIN_CONFIG_INFO
