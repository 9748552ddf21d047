"""device_binary: a C binary built with the toolchain of a device, beside whatever the host builds."""

def _device_transition_impl(_settings, attr):
    return {
        "//command_line_option:compilation_mode": "opt",
        "//command_line_option:platforms": "//devices:" + attr.device,
    }

_device_transition = transition(
    implementation = _device_transition_impl,
    inputs = [],
    outputs = [
        "//command_line_option:compilation_mode",
        "//command_line_option:platforms",
    ],
)

def _device_binary_impl(ctx):
    built = ctx.attr.binary[0][DefaultInfo].files_to_run.executable
    link = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.symlink(output = link, target_file = built, is_executable = True)
    return [DefaultInfo(
        executable = link,
        files = depset([link]),
        runfiles = ctx.runfiles([link]),
    )]

device_binary = rule(
    implementation = _device_binary_impl,
    doc = "Builds `binary` for `device`, the name of a file in //devices.",
    attrs = {
        "binary": attr.label(cfg = _device_transition, executable = True, mandatory = True),
        "device": attr.string(mandatory = True),
        "_allowlist_function_transition": attr.label(
            default = "@bazel_tools//tools/allowlists/function_transition_allowlist",
        ),
    },
    executable = True,
)
