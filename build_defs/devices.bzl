"""Repository rule that turns the device files into Starlark, so that they alone hold the flags."""

load(":python.bzl", "PYTHON_ATTR", "find_python", "watched")

_PROGRAM = """\
import pprint, sys, tomllib
devices = {}
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        table = tomllib.load(file)
    toolchain = table["toolchain"]
    devices[table["name"]] = {
        "target": toolchain["target"],
        "cpu": toolchain["cpu"],
        "flags": toolchain.get("flags", []),
    }
print("DEVICES = " + pprint.pformat(devices))
"""

_HEAD = """\
\"\"\"Made from devices/*.toml: how code for each device is built.\"\"\"

HOST_PLATFORM = "%s"

"""

def _device_files_impl(rctx):
    files = [watched(rctx, file) for file in rctx.attr.files]
    result = rctx.execute([find_python(rctx), "-I", "-c", _PROGRAM] + files)
    if result.return_code:
        fail("a device file cannot be read:\n" + result.stderr)
    rctx.file("BUILD", "")
    rctx.file("devices.bzl", _HEAD % rctx.attr.host_platform + result.stdout)

device_files = repository_rule(
    implementation = _device_files_impl,
    doc = "Defines @NAME//:devices.bzl: DEVICES (name -> target, cpu and flags of its toolchain), HOST_PLATFORM.",
    attrs = {
        "files": attr.label_list(allow_files = [".toml"], mandatory = True),
        "host_platform": attr.string(doc = "Label of this machine's platform.", mandatory = True),
        "python": PYTHON_ATTR,
    },
)
