"""Module extension for MODULE.bazel: the repositories of WORKSPACE, made with rules_python's interpreter."""

load("//build_defs:repositories.bzl", _repositories = "repositories")

def _repositories_impl(module_ctx):
    _repositories(
        host_platform = "@platforms//host",
        python = Label("@python_3_11_host//:python"),
    )
    return module_ctx.extension_metadata(reproducible = True)

repositories = module_extension(
    implementation = _repositories_impl,
    doc = "Defines the locked wheels, the device files and the programs that BUILD files name.",
)
