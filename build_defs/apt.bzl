"""Repository rule for a C header from a Debian package."""

def _apt_header_impl(rctx):
    path = rctx.path(rctx.attr.path)
    if not path.exists:
        fail("%s is missing: apt-get install %s" % (path, rctx.attr.package))
    rctx.symlink(path, path.basename)
    rctx.file("BUILD", "exports_files([\"%s\"])\n" % path.basename)

apt_header = repository_rule(
    implementation = _apt_header_impl,
    doc = "Defines @NAME//:FILE, a header of this machine; bazelw installs its package.",
    attrs = {
        "package": attr.string(doc = "Of Debian.", mandatory = True),
        "path": attr.string(doc = "Where the package puts the header.", mandatory = True),
    },
)
