"""The repositories beside this one, the same for WORKSPACE and for MODULE.bazel."""

load("//build_defs:apt.bzl", "apt_header")
load("//build_defs:devices.bzl", "device_files")
load("//build_defs:npm.bzl", "npm_program")
load("//build_defs:pip.bzl", "pip_lock")

# Locks on the base, //third_party/pypi:pypi.lock: one per set of conflicting packages, so that
# a test depends on its own framework only. pip.parse of rules_python would make one set of all.
_LAYERS = [
    "docs",
    "flower",
    "jax",
    "labgrid",
    "lint",
    "minilm",
    "mnn",
    "onnx",
    "ort",
    "postgres",
    "postgres_server",
    "report",
    "search",
    "slang",
    "tensorflow",
    "tflite",
    "torch",
    "trackers",
    "tvm",
]

# The CPU build carries a local version, which sorts above the CUDA build of the same version on the public index; where
# only the public index is known, PyTorch's own index has it. Its file differs between the two, so it has no hash.
_UNHASHED = {"torch": ["torch==2.13.0+cpu"]}
_FALLBACK_INDEX = {"torch": "https://download.pytorch.org/whl/cpu"}

_DEVICES = [
    "apple-m1",
    "host",
    "jetson-orin",
    "rpi4",
    "rpi5",
    "snapdragon-dsp",
]

def repositories(host_platform, python = None):
    """Define every repository that BUILD files name, but those of rules.

    Args:
      host_platform: label of the platform of this machine.
      python: label of the interpreter that runs pip; by default one of this machine.
    """
    pip_lock(name = "pypi", lock = "//third_party/pypi:pypi.lock", python = python)
    for name in _LAYERS:
        pip_lock(
            name = "pypi_" + name,
            base = "pypi",
            base_lock = "//third_party/pypi:pypi.lock",
            fallback_index = _FALLBACK_INDEX.get(name, ""),
            lock = "//third_party/pypi:%s.lock" % name,
            python = python,
            unhashed = _UNHASHED.get(name, []),
        )
    pip_lock(name = "pypi_cuda", lock = "//third_party/pypi:cuda.lock", python = python)
    pip_lock(name = "zig", lock = "//third_party/pypi:zig.lock", python = python)
    npm_program(
        name = "buildifier",
        package = "@bazel/buildifier",
        program = "buildifier",
        python = python,
        sha256 = "b96ea9b13003036c801f52bee6f9b0314738f8432e5cb9d814c89f59292604ee",
        version = "8.2.1",
    )
    apt_header(
        name = "stb",
        package = "libstb-dev",
        path = "/usr/include/stb/stb_image.h",
    )
    device_files(
        name = "device_files",
        files = ["//devices:%s.toml" % device for device in _DEVICES],
        host_platform = host_platform,
        python = python,
    )
