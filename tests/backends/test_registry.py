"""A device names its backend; for an unknown or incomplete one the error names it."""

from dataclasses import replace
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

import pockengine
from pockengine.backends import registry
from pockengine.backends.c.backend import CBackend
from pockengine.backends.protocol import BackendKind, BackendOptions
from pockengine.backends.registry import GROUP, backend_for, known_backends, register
from pockengine.devices import Device, find_device, load_device
from pockengine.errors import CompileError, DeviceError
from pockengine.tests.backends.toy import DEVICE
from pockengine.tests.backends.toy.backend import ToyBackend, make
from pockengine.tests.backends.toy.session import ToySession
from pockengine.tests.compiler.small_nets import residual_net

TOY = find_device(DEVICE)


def test_a_device_is_a_name_a_file_or_a_value() -> None:
    assert find_device("rpi4") == load_device("rpi4")
    assert find_device(str(DEVICE)) == TOY == find_device(TOY)
    assert (TOY.backend, load_device("rpi4").backend) == ("toy", "c")


def test_a_backend_is_the_one_that_its_device_names() -> None:
    assert isinstance(backend_for(load_device("rpi4")), CBackend)
    assert not isinstance(backend_for(TOY), CBackend)
    assert {"c", "toy"} <= set(known_backends())


def test_an_unknown_backend_is_named_with_the_known_ones() -> None:
    device = replace(TOY, backend="glow")

    with pytest.raises(
        DeviceError,
        match=r"device toy needs the backend 'glow'; known.*: c, cuda, gpu, onnx, opencl, .*toy",
    ):
        pockengine.compile(residual_net(), None, device=device)


@pytest.mark.parametrize("name", ["os.path", "../c", "c:make", ""])
def test_a_name_is_never_a_module(name: str) -> None:
    with pytest.raises(DeviceError, match="needs the backend"):
        backend_for(replace(TOY, backend=name))


def test_an_installed_package_offers_a_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = EntryPoint("glow", "pockengine.tests.backends.toy:KIND", GROUP)
    path = EntryPoint("none", "pockengine.tests.backends.toy:DEVICE", GROUP)
    installed = EntryPoints([kind, path])
    monkeypatch.setattr(registry, "entry_points", installed.select)

    assert "glow" in known_backends()
    assert isinstance(backend_for(replace(TOY, backend="glow")), ToyBackend)
    with pytest.raises(DeviceError, match=r"entry point none .* is no BackendKind"):
        backend_for(replace(TOY, backend="none"))


def test_a_name_is_taken_once() -> None:
    for name in ("c", "toy"):
        with pytest.raises(DeviceError, match=f"'{name}' is there already"):
            register(name, BackendKind(make, ToySession))


def test_an_option_that_a_backend_lacks_is_refused_by_name() -> None:
    for option in ("bf16", "tuned"):
        with pytest.raises(CompileError, match=f"backend toy has no option {option}"):
            backend_for(TOY, BackendOptions(**{option: "plans.json"}))


@pytest.mark.parametrize("fact", ["cpu", "toolchain"])
def test_what_a_device_lacks_is_named(fact: str) -> None:
    with pytest.raises(DeviceError, match=rf"device toy has no \[{fact}\] table"):
        getattr(TOY, fact)


@pytest.mark.parametrize("line", ['processor = "fast"', 'backend = "../c"', "cpu = 3"])
def test_a_device_file_is_checked(tmp_path: Path, line: str) -> None:
    path = tmp_path / "toy.toml"
    path.write_text(f"{line}\n{DEVICE.read_text()}".replace('backend = "toy"\n', ""))

    with pytest.raises(DeviceError, match=r"device file toy\.toml"):
        find_device(path)


def test_c_code_needs_the_tables_that_it_reads(tmp_path: Path) -> None:
    path = tmp_path / "bare.toml"
    path.write_text('name = "bare"\ndescription = "no cpu"\nmemory_bytes = 1000\n')

    with pytest.raises(DeviceError, match=r"bare.toml has no \[cpu\] table, which the backend c"):
        find_device(path)
    with pytest.raises(DeviceError, match=r"device bare has no \[cpu\] table"):
        pockengine.compile(residual_net(), None, device=Device("bare", "no cpu", 1000))
