"""A flag of rules_python that .bazelrc sets. Bazel 4's own Python rules do not read it."""

def _flag_impl(_ctx):
    return []

flag = rule(
    implementation = _flag_impl,
    build_setting = config.string(flag = True),
    doc = "Accepts any value.",
)
