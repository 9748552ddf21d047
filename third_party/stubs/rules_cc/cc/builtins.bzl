"""Bazel 4's own globals, under names that the files which export them may load."""

BUILTIN_CC_COMMON = cc_common
BUILTIN_CC_TOOLCHAIN_CONFIG_INFO = CcToolchainConfigInfo
