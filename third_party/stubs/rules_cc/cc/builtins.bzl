"""Bazel 4's globals, under names that other files can load and re-export."""

BUILTIN_CC_COMMON = cc_common
BUILTIN_CC_TOOLCHAIN_CONFIG_INFO = CcToolchainConfigInfo
