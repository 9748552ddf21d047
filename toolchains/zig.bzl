"""C toolchains that wrap `zig cc`, one per device, with the target and flags of the device's file."""

load("@rules_cc//cc:action_names.bzl", "ACTION_NAMES")
load(
    "@rules_cc//cc:cc_toolchain_config_lib.bzl",
    "feature",
    "flag_group",
    "flag_set",
    "tool_path",
    "with_feature_set",
)
load("@rules_cc//cc/common:cc_common.bzl", "cc_common")
load("@rules_cc//cc/toolchains:cc_toolchain.bzl", "cc_toolchain")
load("@rules_cc//cc/toolchains:cc_toolchain_config_info.bzl", "CcToolchainConfigInfo")

_COMPILE = [
    ACTION_NAMES.assemble,
    ACTION_NAMES.c_compile,
    ACTION_NAMES.cpp_compile,
    ACTION_NAMES.cpp_header_parsing,
    ACTION_NAMES.preprocess_assemble,
]

_LINK = [
    ACTION_NAMES.cpp_link_dynamic_library,
    ACTION_NAMES.cpp_link_executable,
    ACTION_NAMES.cpp_link_nodeps_dynamic_library,
]

# The target whose libc is built once for all of its CPUs, like by backends/native/build.py: 75 s each.
_SHARED_LIBC = "aarch64-linux-musl"

def _set(actions, flags, mode = None):
    return flag_set(
        actions = actions,
        flag_groups = [flag_group(flags = flags)],
        with_features = [with_feature_set(features = [mode])] if mode else [],
    )

def _features(target, cpu, flags):
    compiled = ["-target", target, "-mcpu=" + cpu] + flags
    linked = ["-target", target, "-mcpu=" + ("baseline" if target == _SHARED_LIBC else cpu)] + flags
    return [
        feature(name = "opt"),
        feature(name = "dbg"),
        feature(name = "fastbuild"),
        feature(
            name = "default_flags",
            enabled = True,
            flag_sets = [
                _set(_COMPILE, compiled),
                _set(_LINK, linked),
                # Zig enables a trapping UBSan by default; separate tests run with sanitizers. When
                # linking, it builds a runtime for it.
                _set(_COMPILE + _LINK, ["-fno-sanitize=undefined"]),
                _set(_COMPILE, ["-Wall", "-Wextra"]),
                _set(_COMPILE, ["-O3", "-DNDEBUG"], "opt"),
                _set(_COMPILE, ["-g"], "dbg"),
                _set(_LINK, ["-s"], "opt"),
            ],
        ),
        # -MMD in place of Bazel's -MD: zig's system headers are part of zig, not inputs of the action.
        feature(
            name = "dependency_file",
            enabled = True,
            flag_sets = [flag_set(
                actions = _COMPILE,
                flag_groups = [flag_group(
                    expand_if_available = "dependency_file",
                    flags = ["-MMD", "-MF", "%{dependency_file}"],
                )],
            )],
        ),
    ]

def _zig_config_impl(ctx):
    target = ctx.attr.target
    unused = ["cpp", "gcov", "ld", "nm", "objdump", "strip"]
    return cc_common.create_cc_toolchain_config_info(
        ctx = ctx,
        toolchain_identifier = ctx.attr.device,
        host_system_name = "local",
        target_system_name = target,
        target_cpu = target.split("-")[0],
        target_libc = target.split("-")[-1],
        compiler = "clang",
        abi_version = "unknown",
        abi_libc_version = "unknown",
        tool_paths = [
            tool_path(name = "gcc", path = "zig_cc.sh"),
            tool_path(name = "ar", path = "zig_ar.sh"),
        ] + [tool_path(name = name, path = "/bin/false") for name in unused],
        features = _features(target, ctx.attr.cpu, ctx.attr.flags),
    )

_zig_config = rule(
    implementation = _zig_config_impl,
    attrs = {
        "cpu": attr.string(mandatory = True),
        "device": attr.string(mandatory = True),
        "flags": attr.string_list(),
        "target": attr.string(mandatory = True),
    },
    provides = [CcToolchainConfigInfo],
)

def zig_toolchain(device, target, cpu, flags):
    """Define the toolchain of one device, selected by its constraint in //devices/constraints.

    Args:
      device: name of the device.
      target: zig's target triple, such as aarch64-linux-musl.
      cpu: zig's name of the CPU, for -mcpu.
      flags: additional compiler flags.
    """
    _zig_config(
        name = device + "_config",
        cpu = cpu,
        device = device,
        flags = flags,
        target = target,
    )
    cc_toolchain(
        name = device + "_cc",
        all_files = ":zig",
        ar_files = ":zig",
        as_files = ":zig",
        compiler_files = ":zig",
        dwp_files = ":zig",
        linker_files = ":zig",
        objcopy_files = ":zig",
        strip_files = ":zig",
        supports_param_files = True,
        toolchain_config = device + "_config",
        toolchain_identifier = device,
        visibility = ["//visibility:public"],
    )
    native.toolchain(
        name = device,
        target_compatible_with = ["//devices/constraints:" + device],
        toolchain = device + "_cc",
        toolchain_type = "@bazel_tools//tools/cpp:toolchain_type",
    )
