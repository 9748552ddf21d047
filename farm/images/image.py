"""The kernel and initial RAM disk of the emulated board, and the keys of both sides.

Everything is in the cache folder: one pair of keys, and one image per recipe (contents and
start-up), identified by the recipe's hash. Building needs apt and a network, once.
"""

import gzip
import hashlib
import json
import lzma
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pockengine.errors import FarmError
from pockengine.farm.images import cpio, packages
from pockengine.farm.images.modules import load_order, plain_name
from pockengine.files import locked
from pockengine.folders import cache_folder

KERNEL = "linux-image-cloud-arm64"
PACKAGES = [
    "busybox-static",
    "dropbear-bin",
    "libc6",
    "libcrypt1",
    "libgmp10",
    "libtomcrypt1",
    "libtommath1",
    "zlib1g",
]
MODULES = ["virtio_pci", "virtio_net", "virtio_rng", "virtio_blk", "ext4"]
PROGRAMS = {"bin/busybox", "usr/sbin/dropbear"}
LIBRARY = re.compile(r"lib/(aarch64-linux-gnu/[^/]+|ld-linux-aarch64)\.so[.\d]*")
INIT = Path(__file__).parent / "guest_init.sh"
TEXTS = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",
    "etc/shadow": "root:*:1::::::\n",  # no password matches
    "etc/group": "root:x:0:\n",
    "etc/shells": "/bin/sh\n",
    "etc/inittab": "::respawn:/usr/sbin/dropbear -F -E -s -j -k -r /etc/dropbear/host_key\n",
}
FOLDERS = ["dev", "etc/dropbear", "jobs", "proc", "root/.ssh", "run", "sys", "tmp", "var/log"]


@dataclass(frozen=True)
class Keys:
    """Both sides' ed25519 keys: the board's identity, and the client's login."""

    host: Path
    client: Path

    @property
    def host_public(self) -> str:
        """Return the board's public key in the format of known_hosts."""
        return _public_line(self.host)


@dataclass(frozen=True)
class Image:
    """Files that QEMU boots."""

    kernel: Path
    initrd: Path
    keys: Keys


def ensure_image() -> Image:
    """Return the image of the current recipe, building it when the cache lacks it."""
    folder = cache_folder() / "farm"
    folder.mkdir(parents=True, exist_ok=True)
    images = folder / "images"
    images.mkdir(exist_ok=True)
    images.chmod(0o700)  # a RAM disk holds its board's private key
    with locked(folder / "lock"):
        keys = _ensure_keys(_keys(folder))
        home = images / _recipe_hash(keys)
        if not home.is_dir():
            _build(home, folder / "apt", keys)
    return Image(home / "kernel", home / "initrd.gz", keys)


def image_is_built() -> bool:
    """Whether the cache has the image of the current recipe."""
    folder = cache_folder() / "farm"
    keys = _keys(folder)
    there = keys.host.exists() and keys.client.exists()
    return there and (folder / "images" / _recipe_hash(keys)).is_dir()


def _build(home: Path, apt: Path, keys: Keys) -> None:
    """Build beside `home` and rename, so that the image appears atomically."""
    debs = packages.download(apt, PACKAGES, KERNEL)
    kernel, entries = collect(debs)
    entries |= {path: cpio.file_entry(text.encode()) for path, text in TEXTS.items()}
    entries |= {path: cpio.folder_entry(0o700) for path in FOLDERS}
    entries["bin/sh"] = cpio.link_entry("busybox")
    entries["init"] = cpio.file_entry(INIT.read_bytes(), 0o755)
    entries["etc/dropbear/host_key"] = cpio.file_entry(_dropbear_key(keys.host), 0o600)
    login = _public_line(keys.client).encode() + b"\n"
    entries["root/.ssh/authorized_keys"] = cpio.file_entry(login, 0o600)
    part = Path(tempfile.mkdtemp(dir=home.parent, prefix=".part-"))
    (part / "kernel").write_bytes(kernel)
    (part / "initrd.gz").write_bytes(gzip.compress(cpio.pack(entries), 1, mtime=0))
    (part / "packages.json").write_text(json.dumps([deb.name for deb in debs], indent=1) + "\n")
    part.rename(home)
    shutil.rmtree(apt / "debs")


def collect(debs: list[Path]) -> tuple[bytes, dict[str, cpio.ArchiveEntry]]:
    """Extract the kernel, its modules, the programs and their libraries from the packages.

    From Debian 13 on, files that older packages have in /bin and /lib are in /usr. All go to the
    old place, where programs look for their loader, and the loader also for libraries.
    """
    kernel = b""
    entries: dict[str, cpio.ArchiveEntry] = {}
    modules: dict[str, bytes] = {}
    for deb in debs:
        for packed, member, data in packages.members(deb):
            path = re.sub(r"^usr/(?=bin/|lib/)", "", packed)
            if path.startswith(("boot/vmlinuz", "lib/modules/")) and "/vmlinuz" in path:
                kernel = data
            elif path.endswith((".ko", ".ko.xz")):
                modules |= _module(path, data)
            elif member.issym() and LIBRARY.fullmatch(path):
                entries[path] = cpio.link_entry(member.linkname)
            elif path in PROGRAMS or LIBRARY.fullmatch(path):
                entries[path] = cpio.file_entry(data, 0o755)
    missing = [path for path in PROGRAMS if path not in entries]
    if missing or not kernel:
        raise FarmError(f"Debian's arm64 packages lack {', '.join(missing) or 'a kernel'}")
    for i, name in enumerate(load_order(modules, MODULES)):
        entries[f"modules/{i:02}-{name}.ko"] = cpio.file_entry(modules[name])
    return kernel, entries


def _module(path: str, data: bytes) -> dict[str, bytes]:
    """Return a module by its name, unpacked (newer kernels compress each)."""
    name = path.rpartition("/")[2].removesuffix(".xz").removesuffix(".ko")
    return {plain_name(name): lzma.decompress(data) if path.endswith(".xz") else data}


def _recipe_hash(keys: Keys) -> str:
    code = [Path(__file__).read_text(), INIT.read_text()]
    recipe = [*code, keys.host_public, _public_line(keys.client)]
    return hashlib.sha256(json.dumps(recipe).encode()).hexdigest()[:16]


def _keys(folder: Path) -> Keys:
    return Keys(folder / "keys" / "host_ed25519", folder / "keys" / "client_ed25519")


def _ensure_keys(keys: Keys) -> Keys:
    keys.host.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in (keys.host, keys.client):
        if not path.exists():
            text = Ed25519PrivateKey.generate().private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.OpenSSH,
                serialization.NoEncryption(),
            )
            part = path.with_suffix(".part")
            part.touch(0o600)
            part.write_bytes(text)
            part.rename(path)
    return keys


def _load(path: Path) -> Ed25519PrivateKey:
    key = serialization.load_ssh_private_key(path.read_bytes(), None)
    if not isinstance(key, Ed25519PrivateKey):
        raise FarmError(f"{path} is not an ed25519 key; remove it, a new one is made")
    return key


def _public_line(path: Path) -> str:
    encoding, form = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    return _load(path).public_key().public_bytes(encoding, form).decode()


def _dropbear_key(path: Path) -> bytes:
    """Return a host key in dropbear's format: its type, then seed and public key as one string."""
    key = _load(path)
    both = key.private_bytes_raw() + key.public_key().public_bytes_raw()
    kind = b"ssh-ed25519"
    return len(kind).to_bytes(4, "big") + kind + len(both).to_bytes(4, "big") + both
