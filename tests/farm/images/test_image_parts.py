"""The packages, the archive writer and the module order of image builds; no QEMU, no network."""

import stat
from pathlib import Path
from tarfile import TarInfo

import pytest

from pockengine.farm.images import packages
from pockengine.farm.images.cpio import ArchiveEntry, file_entry, link_entry, pack
from pockengine.farm.images.image import collect
from pockengine.farm.images.modules import depends, load_order


def unpack(archive: bytes) -> dict[str, ArchiveEntry]:
    """Read a newc archive, as the kernel's documentation describes the format."""
    entries: dict[str, ArchiveEntry] = {}
    at = 0
    while True:
        assert archive[at : at + 6] == b"070701"
        fields = [int(archive[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in range(13)]
        mode, size, name_size = fields[1], fields[6], fields[11]
        name = archive[at + 110 : at + 110 + name_size - 1].decode()
        start = at + 110 + name_size + (-(110 + name_size) % 4)
        if name == "TRAILER!!!":
            return entries
        entries[name] = ArchiveEntry(mode, archive[start : start + size])
        at = start + size + (-size % 4)


def test_archives_round_trip() -> None:
    entries = {"a": file_entry(b"12345", 0o755), "b/c/d": file_entry(b""), "l": link_entry("a")}

    unpacked = unpack(pack(entries))

    assert {name: unpacked[name] for name in entries} == entries


def test_parent_folders_precede_their_contents() -> None:
    names = list(unpack(pack({"b/c/d": file_entry(b"x")})))

    assert names == ["b", "b/c", "b/c/d"]


def test_archives_do_not_depend_on_the_order() -> None:
    a, b = file_entry(b"a"), file_entry(b"b")

    assert pack({"x": a, "y": b}) == pack({"y": b, "x": a})


def test_explicit_folders_keep_their_permissions() -> None:
    entries = {"root": ArchiveEntry(stat.S_IFDIR | 0o700), "root/key": file_entry(b"k", 0o600)}

    assert unpack(pack(entries))["root"].mode == stat.S_IFDIR | 0o700


def module(*names: str) -> bytes:
    return b"\0license=GPL\0depends=" + ",".join(names).encode() + b"\0name=x\0"


def test_modules_are_loaded_after_their_dependencies() -> None:
    modules = {
        "net": module("ring", "failover"),
        "pci": module("ring", "core"),
        "core": module("ring"),
        "ring": module(),
        "failover": module(),
        "unused": module(),
    }

    order = load_order(modules, ["pci", "net", "built_in"])

    assert order == ["ring", "core", "pci", "failover", "net"]


def test_dashes_in_module_names_are_underscores() -> None:
    assert depends(module("rng-core")) == ["rng_core"]


@pytest.mark.parametrize("usr", ["", "usr/"])
def test_files_of_old_and_new_packages_go_to_the_same_place(
    usr: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "usr/lib/modules/7/vmlinuz" if usr else "boot/vmlinuz-6": b"kernel",
        f"{usr}lib/modules/7/kernel/virtio-rng.ko": module(),
        f"{usr}lib/aarch64-linux-gnu/libc.so.6": b"libc",
        f"{usr}bin/busybox": b"busybox",
        "usr/sbin/dropbear": b"dropbear",
        "usr/share/doc/busybox-static/copyright": b"",
    }
    members = [(path, TarInfo(path), data) for path, data in files.items()]
    monkeypatch.setattr(packages, "members", lambda deb: members)

    kernel, entries = collect([Path("all.deb")])

    assert kernel == b"kernel"
    assert sorted(entries) == [
        "bin/busybox",
        "lib/aarch64-linux-gnu/libc.so.6",
        "modules/00-virtio_rng.ko",
        "usr/sbin/dropbear",
    ]


def test_a_kernel_is_one_package_or_an_image_and_its_parts() -> None:
    depends_on = {
        "old": ["linux-image-6"],
        "linux-image-6": ["kmod", "linux-base"],
        "new": ["linux-base-7", "linux-image-7"],
        "linux-image-7": ["linux-base-7", "linux-binary-7", "linux-modules-7"],
    }

    kernels = [packages.kernel_packages(name, depends_on.__getitem__) for name in ("old", "new")]

    assert kernels == [["linux-image-6"], ["linux-image-7", "linux-binary-7", "linux-modules-7"]]
    assert packages.kernel_packages("none", lambda name: []) == []
