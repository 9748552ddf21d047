"""Repository rule for a program from an npm package, one build per kind of machine."""

load(":python.bzl", "PYTHON_ATTR", "find_python", "watched")

_BUILD = """\
filegroup(
    name = "program",
    srcs = glob(["%s"], allow_empty = True),
    visibility = ["//visibility:public"],
)
"""

def _npm_program_impl(rctx):
    result = rctx.execute(
        [
            find_python(rctx),
            "-I",
            watched(rctx, Label("//build_defs:npm_fetch.py")),
            "--package=" + rctx.attr.package,
            "--version=" + rctx.attr.version,
            "--sha256=" + rctx.attr.sha256,
            "--name=" + rctx.attr.program,
        ],
        timeout = 600,
    )
    if result.return_code:
        fail("%s of npm could not be installed:\n%s%s" % (rctx.attr.package, result.stdout, result.stderr))
    rctx.file("BUILD", _BUILD % rctx.attr.program)

npm_program = repository_rule(
    implementation = _npm_program_impl,
    doc = "Defines @NAME//:program, the file PROGRAM-SYSTEM_MACHINE of an npm package, or nothing without npm.",
    attrs = {
        "package": attr.string(mandatory = True),
        "program": attr.string(mandatory = True),
        "python": PYTHON_ATTR,
        "sha256": attr.string(doc = "Of the package's archive.", mandatory = True),
        "version": attr.string(mandatory = True),
    },
)
