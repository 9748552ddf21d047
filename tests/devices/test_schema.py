"""Device files are data: their contents never become code, file names or programs."""

from pathlib import Path

import pytest

from pockengine.devices.schema import FOLDER, known_devices, load_device, own_folder, read_device
from pockengine.errors import DeviceError

RPI4 = (FOLDER / "rpi4.toml").read_text()


def device(folder: Path, text: str) -> Path:
    path = folder / "rpi4.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('target = "aarch64-linux-musl"', 'target = "-fplugin=evil.so"'),
        ('target = "aarch64-linux-musl"', 'target = "a b"'),
        ('target = "aarch64-linux-musl"', 'target = ""'),
        ('cpu = "cortex_a72"', 'cpu = "x\\n-o/etc/passwd"'),
        ('cpu = "cortex_a72"', 'cpu = "x" \nflags = ["-fplugin=evil.so"]'),
        ('cpu = "cortex_a72"', 'cpu = "x" \nflags = ["-mllvm", "-load=evil.so"]'),
        ('cpu = "cortex_a72"', 'cpu = "x" \nflags = ["@/etc/passwd"]'),
        ('cpu = "cortex_a72"', 'cpu = "x" \nflags = ["-o/etc/passwd"]'),
        ('cpu = "cortex_a72"', 'cpu = "x" \nflags = ["-include", "/etc/passwd"]'),
        ('cpu = "cortex_a72"', 'cpu = "x" \nflags = ["-DX=system(0)"]'),
        *(
            ('cpu = "cortex_a72"', f'cpu = "x" \nflags = ["-m{flag}"]')
            for flag in (
                *(
                    "llvm",
                    "llvm=-load=evil.so",
                    "linker-version=1",
                    "exec-model=reactor",
                    "windows",
                ),
                *(
                    "relocation-model=pic",
                    "red-zone",
                    "fentry",
                    "cmodel=large",
                    "stack-probe-size=0",
                ),
                *(
                    "soft-float",
                    "arch=x,y",
                    "arch=",
                    "arch=../x",
                    "avx2=1",
                    "no-",
                    "harden-sls=all",
                ),
            )
        ),
        ('cpu = "cortex_a72"', 'cpu = "x" \nflags = "-O3"'),
        ('cpu = "cortex_a72"', 'cpu = "x" \nflags = [3]'),
        ('cpu = "cortex-a72"', 'cpu = "max,x=/etc/passwd"'),
        ('machine = "virt"', 'machine = "virt,dumpdtb=x"'),
        ('machine = "virt"', 'program = "/bin/sh"'),
        ('machine = "virt"', 'program = "qemu-x/../../bin/sh"'),
        ('isa = "neon"', 'isa = "neon\\"); system("'),
        ('isa = "neon"', "isa = 3"),
        ('arch = "aarch64"', 'arch = "*/"'),
        ("cores = 4", "cores = 0"),
        ("cores = 4", 'cores = "4); system(("'),
        ("cores = 4", "cores = true"),
        ("cores = 4", "cores = inf"),
        ("cores = 4", "cores = -1"),
        ("line_bytes = 64", "line_bytes = 0"),
        ("memory_bytes = 4294967296", "memory_bytes = 1e99"),
        ("memory_bytes = 4294967296", f"memory_bytes = 1{'0' * 5000}"),
        ("[emulator]", "[[emulator]]"),
        ("[cpu]", "[[cpu]]"),
        ('name = "rpi4"', "name = 3"),
        ('recognize = ["Raspberry Pi 4", "CPU part 0xd08"]', "recognize = [[]]"),
    ],
)
def test_an_invalid_field_is_a_device_error(tmp_path: Path, old: str, new: str) -> None:
    assert old in RPI4
    read_device(device(tmp_path, RPI4))
    with pytest.raises(DeviceError, match=r"rpi4\.toml"):
        read_device(device(tmp_path, RPI4.replace(old, new)))


ORIN = (FOLDER / "jetson-orin.toml").read_text()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('language = "cuda"', 'language = "metal"'),
        ('architecture = "sm_87"', 'architecture = "sm_87 --x"'),
        ('architecture = "sm_87"', 'architecture = "compute_87"'),
        ('architecture = "sm_87"', ""),
        ('architecture = "sm_87"', "architecture = 87"),
        ("units = 16", "units = 0"),
        ("lanes = 128", 'lanes = "128"'),
        ("bandwidth = 204800000000", "bandwidth = 0"),
        ("shared_bytes = 49152", "shared_bytes = -1"),
        ("shared_bytes = 49152", "shared_bytes = 49152\nmemory_bytes = -1"),
        ("shared_bytes = 49152", "shared_bytes = 49152\nwarps = 4"),
        ("bf16_lanes = 1024", "bf16_lanes = -1"),
        ('architecture = "sm_87"', 'architecture = "sm_75"'),
        ("[gpu] ", "[[gpu]]"),
    ],
)
def test_an_invalid_gpu_is_a_device_error(tmp_path: Path, old: str, new: str) -> None:
    assert old in ORIN
    path = tmp_path / "jetson-orin.toml"
    path.write_text(ORIN)
    assert read_device(path).gpu.architecture == "sm_87"
    path.write_text(ORIN.replace(old, new))
    with pytest.raises(DeviceError, match=r"jetson-orin\.toml"):
        read_device(path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "[cpu]",
            "[cpus]",
            "unknown key 'cpus'; known: name, description, memory_bytes, cpu, tool",
        ),
        ("[cpu]", "[processor]", "unknown key 'processor'; known: name"),
        ("mhz", "hertz", r"rpi4\.toml, \[cpu\]: unknown key 'hertz'; known: arch, model"),
        ('isa = "neon"', "", r"rpi4\.toml, \[cpu\]: it lacks isa"),
        ("cores = 4", "cores = 0", "0 cores, and cache lines of 64 bytes; give 1 to 1024 cores"),
        (
            'arch = "aarch64"',
            'arch = "aarch"',
            "'neon' is of aarch64 and arm64, and arch is 'aarch'",
        ),
    ],
)
def test_errors_name_tables_and_keys_of_the_file(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert old in RPI4
    with pytest.raises(DeviceError, match=message):
        read_device(device(tmp_path, RPI4.replace(old, new)))


def test_an_opencl_gpu_has_no_architecture() -> None:
    assert load_device("adreno-740").gpu.architecture == ""
    with pytest.raises(DeviceError, match=r"rpi4 has no \[gpu\] table"):
        _ = load_device("rpi4").gpu


def test_a_phones_program_is_static_and_needs_no_avx() -> None:
    for name, isa in (("phone-arm64", "neon"), ("phone-x86_64", "sse2")):
        phone = load_device(name)
        assert phone.toolchain.target.endswith(
            "linux-musl"
        )  # independent of Android's own C library
        assert phone.cpu.isa == isa


def test_flags_that_select_a_cpu_are_accepted(tmp_path: Path) -> None:
    flags = ("-mfpu=neon-vfpv4", "-O2", "-march=armv8.2-a+dotprod", "-mno-avx512f", "-mhvx")
    text = RPI4.replace("[toolchain]", f"[toolchain]\nflags = {list(flags)}")
    assert read_device(device(tmp_path, text)).toolchain.flags == flags


def test_a_binary_file_is_a_device_error(tmp_path: Path) -> None:
    (tmp_path / "rpi4.toml").write_bytes(b"\xff")
    with pytest.raises(DeviceError):
        read_device(tmp_path / "rpi4.toml")
    with pytest.raises(DeviceError):
        read_device(tmp_path)


def test_a_user_defined_device_is_found_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(DeviceError, match=f"unknown device 'camera'.*{own_folder()}"):
        load_device("camera")
    own_folder().mkdir(parents=True)
    for name in ("camera", "rpi4"):
        text = RPI4.replace('name = "rpi4"', f'name = "{name}"').replace("1500", "700")
        (own_folder() / f"{name}.toml").write_text(text)
    assert "camera" in known_devices()
    assert load_device("camera").cpu.mhz == 700
    assert load_device("rpi4").cpu.mhz == 1500  # the built-in one
