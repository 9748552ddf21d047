"""Repository rule that turns the device files into Starlark, so that they alone hold the flags."""

load(":python.bzl", "find_python")

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

def _device_files_impl(rctx):
    files = [rctx.path(file) for file in rctx.attr.files]
    result = rctx.execute([find_python(rctx), "-I", "-c", _PROGRAM] + files)
    if result.return_code:
        fail("a device file cannot be read:\n" + result.stderr)
    rctx.file("BUILD", "")
    rctx.file("devices.bzl", "\"\"\"Made from devices/*.toml: how code for each device is built.\"\"\"\n\n" + result.stdout)

device_files = repository_rule(
    implementation = _device_files_impl,
    doc = "Defines @NAME//:devices.bzl with DEVICES: name -> target, cpu and flags of its toolchain.",
    attrs = {"files": attr.label_list(allow_files = [".toml"], mandatory = True)},
)
