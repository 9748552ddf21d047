"""Repository rule for a locked set of wheels: one package, and one label, per distribution."""

load(":python.bzl", "PYTHON_ATTR", "find_python", "watched")

def _pip_lock_impl(rctx):
    installer = watched(rctx, Label("//build_defs:pip_install.py"))
    arguments = ["--lock", watched(rctx, rctx.attr.lock)]
    if rctx.attr.base:
        arguments += ["--base", rctx.attr.base, "--base-lock", watched(rctx, rctx.attr.base_lock)]
    for requirement in rctx.attr.unhashed:
        arguments += ["--unhashed", requirement]
    if rctx.attr.fallback_index:
        arguments += ["--fallback-index", rctx.attr.fallback_index]
    rctx.report_progress("installing the wheels of %s" % rctx.attr.lock.name)
    result = rctx.execute(
        [find_python(rctx), "-I", installer] + arguments,
        timeout = rctx.attr.timeout,
    )
    if result.return_code:
        fail("the wheels of %s could not be installed:\n%s%s" % (rctx.attr.lock, result.stdout, result.stderr))
    rctx.file("BUILD", "")

pip_lock = repository_rule(
    implementation = _pip_lock_impl,
    doc = "Installs a lock file with pip and defines @NAME//DISTRIBUTION for each distribution.",
    attrs = {
        "base": attr.string(doc = "Repository that provides every distribution of base_lock."),
        "base_lock": attr.label(allow_single_file = True),
        "fallback_index": attr.string(doc = "Index for what is unhashed and not found elsewhere."),
        "lock": attr.label(allow_single_file = True, mandatory = True),
        "python": PYTHON_ATTR,
        "timeout": attr.int(default = 3600),
        "unhashed": attr.string_list(doc = "Exact requirements installed without a hash."),
    },
)
