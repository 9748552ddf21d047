"""The Java library on an aarch64 JVM under QEMU: it trains as the board's runner does.

POCKENGINE_AARCH64_ROOT names a folder with the files of Debian's arm64 packages; see the README of
bindings/java.
"""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from pockengine.backends.artifact import Artifact, write_artifact
from pockengine.backends.native.build import compile_all, link_library
from pockengine.backends.native.runtime_files import is_runner
from pockengine.backends.native.toolchain import find_toolchain
from pockengine.devices import load_device
from pockengine.devices.schema import Device
from pockengine.tests.backends.c.programs import compile_for, convolutional_graph
from pockengine.tests.backends.c.runner import as_rows
from pockengine.tests.bindings.checks import (
    LIBRARY,
    batches_of,
    bytes_of,
    call,
    compile_checks,
    java_home,
)

QEMU, ROOT = "qemu-aarch64", os.environ.get("POCKENGINE_AARCH64_ROOT", "")
STEPS, RATE = 20, 0.1

pytestmark = [
    pytest.mark.skipif(not ROOT, reason="POCKENGINE_AARCH64_ROOT is not set (bindings/java)"),
    pytest.mark.skipif(shutil.which(QEMU) is None, reason=f"{QEMU} is not installed"),
]


def library_of(artifact: Artifact, folder: Path) -> Path:
    """Build the native library for the JVM's C library."""
    device = load_device(artifact.device)
    gnu = replace(device, compiler=replace(device.toolchain, target="aarch64-linux-gnu"))
    objects = [made for source, made in compile_all(artifact.folder / "code", gnu)
               if not is_runner(source)]  # fmt: skip
    library = folder / "libpockengine_java.so"
    link_library(gnu, [*objects, natives(gnu, artifact, folder / "pe_jni.o")], library)
    return library


def natives(device: Device, artifact: Artifact, out: Path) -> Path:
    toolchain, include = find_toolchain(device), java_home() / "include"
    folders = (include, include / "linux", artifact.folder / "include")
    named = ("-DPE_JNI_PROGRAMS=PE_JNI(small_cnn)", *(f"-I{folder}" for folder in folders))
    source = LIBRARY / "c" / "pe_jni.c"
    options = ("-std=c11", "-O2", "-fPIC", "-fvisibility=hidden")
    call(*toolchain.command, *options, *named, "-c", source, "-o", out, **toolchain.environment)
    return out


def test_training_equals_the_runner_bit_for_bit(tmp_path: Path) -> None:
    program, backend = compile_for(convolutional_graph(), load_device("rpi4"))
    artifact = write_artifact(program, backend, tmp_path / "artifact")
    batches, data = batches_of(STEPS), tmp_path / "data"
    data.write_bytes(bytes_of(batches))
    stacked = {name: np.stack([batch[name] for batch in batches]) for name in batches[0]}
    save_file(as_rows(stacked), tmp_path / "rows")
    classes = compile_checks(tmp_path / "classes")
    library = library_of(artifact, tmp_path)

    java = min(Path(ROOT).glob("usr/lib/jvm/*/bin/java"))
    options = ("-Xss512k", f"-Dpockengine.library={library}", "-cp", classes)
    command = (QEMU, "-L", ROOT, java, *options, "Checks", artifact.weights, data, tmp_path)
    printed = [line for line in call(*command).splitlines() if line.startswith("loss ")]
    rows = ("--weights", artifact.weights, "--data", tmp_path / "rows")
    how = ("--steps", STEPS, "--lr", RATE, "--threads", 1)
    lines = call(QEMU, artifact.executable, "train", *rows, *how).splitlines()

    losses = [row["loss"] for row in map(json.loads, lines) if "loss" in row]
    assert len(losses) == STEPS
    assert printed == [f"loss {np.float32(loss).view(np.int32)}" for loss in losses]
