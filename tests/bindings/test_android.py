"""The example app as an APK of Debian's Android tools, as far as they go.

They have no compiler for Dalvik and no resources newer than Android 10, so the APK has no classes.
"""

import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from pockengine.backends.artifact import Artifact, write_artifact
from pockengine.devices import load_device
from pockengine.tests.backends.c.programs import compile_for, convolutional_graph

APP = Path(__file__).parents[2] / "bindings" / "java" / "app"
MANIFEST = APP / "src" / "main" / "AndroidManifest.xml"
FRAMEWORK = Path("/usr/share/android-framework-res/framework-res.apk")
TOOLS = ("aapt", "zipalign", "apksigner", "keytool")
OPTIONS = {
    "--min-sdk-version": "minSdk",
    "--target-sdk-version": "targetSdk",
    "--version-code": "versionCode",
    "--version-name": "versionName",
    "--ignore-assets": "ignoreAssetsPattern",
}
"""Options of aapt by what Gradle takes them from."""
KEY = ("-storepass", "unused", "-keypass", "unused", "-keyalg", "RSA", "-dname", "CN=test")

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, TOOLS)) or not FRAMEWORK.is_file(),
    reason="apt-get install aapt android-framework-res apksigner zipalign default-jre-headless",
)


def call(*command: object) -> str:
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def setting(name: str) -> str:
    """Return a value of the app's build.gradle."""
    (value,) = re.findall(rf'^\s*{name} "?([^"\n]+)"?$', (APP / "build.gradle").read_text(), re.M)
    return str(value)


@pytest.fixture(name="artifact", scope="module")
def a_program_for_phones(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    program, backend = compile_for(convolutional_graph(), load_device("phone-arm64"))
    return write_artifact(program, backend, tmp_path_factory.mktemp("phone") / "artifact")


@pytest.fixture(name="apk", scope="module")
def a_packed_app(artifact: Artifact, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Package the manifest and the assets as Gradle would."""
    folder = tmp_path_factory.mktemp("apk")
    text, package = MANIFEST.read_text(), setting("applicationId")
    (folder / MANIFEST.name).write_text(
        text.replace("<manifest ", f'<manifest package="{package}" ')
    )
    options = [word for option, name in OPTIONS.items() for word in (option, setting(name))]
    inputs = ("-M", folder / MANIFEST.name, "-A", artifact.folder, "-I", FRAMEWORK)
    call("aapt", "package", "-f", *inputs, *options, "-F", folder / "app.apk")
    return folder / "app.apk"


def test_the_manifest_starts_an_activity_of_the_app(apk: Path) -> None:
    facts = call("aapt", "dump", "badging", apk)
    (activity,) = re.findall(r"launchable-activity: name='([\w.]+)'", facts)
    assert f"package: name='{setting('namespace')}' versionCode='1'" in facts
    assert f"targetSdkVersion:'{setting('targetSdk')}'" in facts
    assert (APP / "src" / "main" / "java" / f"{activity.replace('.', '/')}.java").is_file()


def test_only_the_weights_become_an_asset(apk: Path, artifact: Artifact) -> None:
    with zipfile.ZipFile(apk) as package:
        assets = [name for name in package.namelist() if name.startswith("assets/")]
        assert assets == [f"assets/{artifact.weights.name}"]
        assert package.read(assets[0]) == artifact.weights.read_bytes()
    worker = next(APP.rglob("TrainWorker.java")).read_text()
    assert f'WEIGHTS = "{artifact.weights.name}"' in worker


def test_a_signed_package_is_aligned(apk: Path) -> None:
    aligned, keys = apk.with_name("aligned.apk"), apk.with_name("keys")
    call("zipalign", "-f", "4", apk, aligned)
    call("keytool", "-genkeypair", "-keystore", keys, "-alias", "test", *KEY)
    call("apksigner", "sign", "--ks", keys, "--ks-pass", "pass:unused", aligned)
    assert "v2 scheme (APK Signature Scheme v2): true" in call(
        "apksigner", "verify", "--verbose", aligned
    )
    call("zipalign", "-c", "4", aligned)


def test_misspelled_attributes_are_found(tmp_path: Path) -> None:
    """The resources of the framework are used: what aapt accepts is known to Android."""
    text = MANIFEST.read_text().replace("<manifest ", '<manifest package="a.b" ')
    (tmp_path / MANIFEST.name).write_text(text.replace("android:exported", "android:exprted"))
    command = ("aapt", "package", "-f", "-M", tmp_path / MANIFEST.name, "-I", FRAMEWORK)
    with pytest.raises(AssertionError, match=r"No resource identifier found.*'exprted'"):
        call(*command, "-F", tmp_path / "app.apk")
