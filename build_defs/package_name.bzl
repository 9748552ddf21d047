"""package_name: the repository's runfiles under the name that Python imports them by."""

def _package_name_impl(ctx):
    # WORKSPACE gives the repository its name; under MODULE.bazel it is always _main.
    if ctx.workspace_name == ctx.label.name:
        return [DefaultInfo()]
    link = ctx.actions.declare_symlink(ctx.label.name)
    ctx.actions.symlink(output = link, target_path = ctx.workspace_name)

    # A link that is not also a file of the runfiles may not exist when their manifest is written.
    runfiles = ctx.runfiles(files = [link], root_symlinks = {ctx.label.name: link})
    return [DefaultInfo(runfiles = runfiles)]

package_name = rule(
    implementation = _package_name_impl,
    doc = "Links NAME to the repository's folder in the runfiles, so that `import NAME` finds it.",
)
