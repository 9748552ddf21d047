"""The Java library on this machine's JVM: training equals Python's bit for bit."""

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from pockengine.backends.artifact import Artifact, write_artifact
from pockengine.backends.native.runtime_files import runtime_file
from pockengine.backends.native.toolchain import find_toolchain
from pockengine.backends.registry import open_session
from pockengine.devices import load_device
from pockengine.tests.backends.c.programs import compile_for, convolutional_graph
from pockengine.tests.bindings.checks import (
    CHECKS,
    LIBRARY,
    ROOT,
    batches_of,
    bytes_of,
    call,
    compile_checks,
    java_home,
)

STEPS, RATE = 20, 0.1

REFUSALS = """\
program: IllegalArgumentException: the native library has no program "words"; it has: small_cnn
weights: SYSTEM: cannot open /nowhere: No such file or directory
threads: IllegalArgumentException: a session needs a program and from 1 to 4096 threads, not 0
entry: IllegalArgumentException: program small_cnn has no entry "walk"; it has: train, evaluate, \
predict
input: IllegalArgumentException: entry "predict" has other inputs than [y]: [x: F32[4, 12, 12, 3]]
size: IllegalArgumentException: the buffer for x: F32[4, 12, 12, 3] has 4 bytes, not 6912
heap: IllegalArgumentException: the buffer for x is not direct: make it by Tensor.newBuffer()
output: IllegalArgumentException: the buffer for logits is read-only: make it by Tensor.newBuffer()
copy: IllegalArgumentException: the buffer for head.weight is read-only: make it by \
Tensor.newBuffer()
train: IllegalArgumentException: entry "train" trains: use a Trainer
param: IllegalArgumentException: program small_cnn has no parameter "tail"
damaged: FORMAT: FOLDER/bad is no sound safetensors file: expected '{' at byte 8
settings: IllegalStateException: the training has no rate or no last step: call rate() and until()
folder: IllegalStateException: there is no folder to resume from: call checkpoints()
name: IllegalArgumentException: the folder of checkpoints has no name; give a path
rate: IllegalArgumentException: the rate is -1.0; give one of at least 0
large: IllegalArgumentException: the rate must be a finite number of at least 0
data: IOException: no more rows at step 1
closed: IllegalStateException: the session of small_cnn is closed: open another one
training: IllegalStateException: the session of small_cnn is training: close it when that call has \
returned
stopped false at 0
went on true at 3
"""


@pytest.fixture(name="classes", scope="module")
def the_compiled_java(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_checks(tmp_path_factory.mktemp("classes"))


@pytest.fixture(name="artifact", scope="module")
def a_small_cnn(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    program, backend = compile_for(convolutional_graph(), load_device("host"))
    return write_artifact(program, backend, tmp_path_factory.mktemp("host") / "artifact")


@pytest.fixture(name="batches")
def the_batches() -> list[Mapping[str, np.ndarray]]:
    return batches_of(STEPS)


def built(artifact: Artifact, folder: Path) -> Path:
    """Build the native library with its CMake file."""
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed (apt-get install cmake)")
    named = f"-DPOCKENGINE_ARTIFACTS={artifact.folder}"
    call("cmake", "-B", folder, named, LIBRARY / "c", JAVA_HOME=str(java_home()))
    call("cmake", "--build", folder)
    return folder / "libpockengine_java.so"


def test_training_equals_python_bit_for_bit(
    classes: Path, artifact: Artifact, batches: list[Mapping[str, np.ndarray]], tmp_path: Path
) -> None:
    """Training stops after 12 steps and resumes; the JVM checks each JNI call."""
    data = tmp_path / "data"
    data.write_bytes(bytes_of(batches))
    library = built(artifact, tmp_path / "build")
    options = ("-Xcheck:jni", "-Xss512k", f"-Dpockengine.library={library}", "-cp", classes)
    printed = call("java", *options, "Checks", artifact.weights, data, tmp_path).splitlines()

    with open_session(artifact) as session:
        losses = [session.train_step(batch, lr=RATE)["loss"] for batch in batches]
        logits = session.predict({"x": batches[0]["x"]})["logits"]
        names = list(load_file(artifact.weights))
        trained = {name: session.get_param(name) for name in names}
    expected = [f"loss {loss.view(np.int32)}" for loss in losses]
    expected[12:12] = ["ended false at 12", "resumed true at 12"]
    expected += ["ended true at 20", " ".join(["logits", *map(str, logits.view(np.int32).ravel())])]
    exported = load_file(tmp_path / "tuned.safetensors")

    assert printed[: len(expected)] == expected
    assert printed[len(expected)] == "weight 7.5"
    assert printed[len(expected) + 1 :] == REFUSALS.replace("FOLDER", str(tmp_path)).splitlines()
    for name, values in exported.items():
        np.testing.assert_array_equal(values, trained[name], err_msg=name)
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == [
        "step-0000000015.safetensors",
        "step-0000000020.safetensors",
    ]


def test_the_native_side_compiles_for_aarch64(artifact: Artifact, tmp_path: Path) -> None:
    """There is no aarch64 JVM here, so the library is only built."""
    device = load_device("phone-arm64")
    toolchain = find_toolchain(device)
    include = java_home() / "include"
    folders = (include, include / "linux", artifact.folder / "include")
    done = subprocess.run(
        [
            *(*toolchain.command, "-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic"),
            *(f"-I{folder}" for folder in folders),
            *("-DPE_JNI_PROGRAMS=PE_JNI(small_cnn)PE_JNI(other)", "-fPIC", "-c"),
            *(str(LIBRARY / "c" / "pe_jni.c"), "-o", str(tmp_path / "pe_jni.o")),
        ],
        env=toolchain.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_example_app_compiles_against_the_library(classes: Path, tmp_path: Path) -> None:
    """Stubs stand in for Android's SDK: the app is compiled but not run."""
    text = (CHECKS.parent / "stubs.txt").read_text()
    for part in text.split("=== ")[1:]:
        name, _, source = part.partition("\n")
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(source)
    sources = [*tmp_path.rglob("*.java"), *(ROOT / "app").rglob("*.java")]
    out = tmp_path / "out"
    options = ("--release", "11", "-Xlint:all,-try", "-Werror")
    call("javac", *options, "-cp", classes, "-d", out, *sources)
    assert (out / "org" / "example" / "train" / "TrainWorker.class").is_file()


def test_an_update_with_another_model_drops_the_old_weights_and_checkpoints(
    tmp_path: Path,
) -> None:
    java_home()
    (source,) = (ROOT / "app").rglob("ModelFolder.java")
    call("javac", "--release", "11", "-d", tmp_path, source, CHECKS.parent / "Updates.java")
    main = "org.example.train.Updates"
    printed = call("java", "-cp", tmp_path, main, tmp_path / "models").splitlines()

    assert printed == [
        *("first false", "first true"),
        "disk full, old weights: false",
        *("second false", "false 1"),
    ]


def test_names_looked_up_by_c_survive_shrinking() -> None:
    rules = (ROOT / "library" / "consumer-rules.pro").read_text()
    c = (LIBRARY / "c" / "pe_jni.c").read_text()
    assert re.findall(r'GetMethodID\(env, trainer, "(\w+)"', c) == ["read", "event"]
    assert "class pockengine.Natives { *; }" in rules
    assert "void read(long);" in rules
    assert "boolean event(int, long, float[], long, byte[], byte[]);" in rules


def test_androids_build_compiles_the_sources(artifact: Artifact, tmp_path: Path) -> None:
    """Build the CMake file's Android branch with this machine's compiler, as there is no NDK."""
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed (apt-get install cmake)")
    include = java_home() / "include"
    flags = f"-march=native -I{include} -I{include}/linux"
    named = f"-DPOCKENGINE_ARTIFACTS={artifact.folder}"
    call("cmake", "-B", tmp_path, named, "-DANDROID=1", f"-DCMAKE_C_FLAGS={flags}", LIBRARY / "c")
    call("cmake", "--build", tmp_path, "-j2")
    library = tmp_path / "libpockengine_java.so"
    shown = {line.split()[-1] for line in call("nm", "-D", library).splitlines()}
    natives = (LIBRARY / "java" / "pockengine" / "Natives.java").read_text()
    methods = re.findall(r"static native [\w\[\]]+ (\w+)\(", natives)
    loaded = [line for line in call("readelf", "-lW", library).splitlines() if " LOAD " in line]

    assert len(methods) == 16
    assert {f"Java_pockengine_Natives_{name}" for name in methods} <= shown
    assert {line.split()[-1] for line in loaded} == {"0x4000"}


def c_names(header: str, kind: str) -> list[str]:
    """Return the names of a C enumeration, without their prefix."""
    text = runtime_file(header).read_text()
    (body,) = re.findall(rf"typedef enum {kind} \{{(.*?)\}} {kind};", text, re.S)
    return re.findall(r"^\s+PE_(\w+)", body, re.M)


def java_names(file: str, kind: str) -> list[str]:
    text = (LIBRARY / "java" / "pockengine" / f"{file}.java").read_text()
    (body,) = re.findall(rf"enum {kind} \{{(.*?)\}}", text, re.S)
    return re.findall(r"\b[A-Z][A-Z0-9_]+\b", re.sub(r"/\*.*?\*/", "", body, flags=re.S))


def test_enumerations_are_in_the_order_of_c() -> None:
    assert java_names("Tensor", "Type") == c_names("pe.h", "pe_dtype")
    assert java_names("Event", "Kind") == c_names("pe_train.h", "pe_event_kind")
    kinds = [name.removesuffix("_RATE") for name in c_names("pe_train.h", "pe_schedule_kind")]
    assert java_names("Trainer", "Schedule") == kinds[:3]
    statuses = [name.removeprefix("ERROR_") for name in c_names("pe.h", "pe_status")]
    reasons = (LIBRARY / "java" / "pockengine" / "PockEngineException.java").read_text()
    natives = (LIBRARY / "java" / "pockengine" / "Natives.java").read_text()
    named = re.findall(r"\b([A-Z]+)\((\d)\)", reasons)
    named += re.findall(r"int (ARGUMENT|NAME|VALUE) = (\d);", natives)
    assert sorted((int(number), name) for name, number in named) == list(enumerate(statuses))[1:]
