"""Write a newc cpio archive, the format of an initial RAM disk, from files in memory.

The owner is root, times are 0 and entries are sorted, so equal content gives equal bytes.
"""

import stat
from dataclasses import dataclass


@dataclass(frozen=True)
class ArchiveEntry:
    """One file of the archive: `mode` is st_mode; a link's data is its target."""

    mode: int
    data: bytes = b""


def file_entry(data: bytes, permissions: int = 0o644) -> ArchiveEntry:
    """Return a regular file."""
    return ArchiveEntry(stat.S_IFREG | permissions, data)


def link_entry(target: str) -> ArchiveEntry:
    """Return a symbolic link."""
    return ArchiveEntry(stat.S_IFLNK | 0o777, target.encode())


def folder_entry(permissions: int = 0o755) -> ArchiveEntry:
    """Return a folder."""
    return ArchiveEntry(stat.S_IFDIR | permissions)


def pack(entries: dict[str, ArchiveEntry]) -> bytes:
    """Return the archive of entries by path (relative, no leading "./"); folders are added."""
    whole = dict(entries)
    for path in entries:
        parts = path.split("/")
        for depth in range(1, len(parts)):
            whole.setdefault("/".join(parts[:depth]), folder_entry())
    blocks = [_block(i, path, whole[path]) for i, path in enumerate(sorted(whole), start=1)]
    return b"".join([*blocks, _block(0, "TRAILER!!!", ArchiveEntry(0))])


def _block(inode: int, path: str, entry: ArchiveEntry) -> bytes:
    """Return header, name and data, padded to 4 bytes as newc requires."""
    name = path.encode() + b"\0"
    links = 2 if stat.S_ISDIR(entry.mode) else 1
    fields = [inode, entry.mode, 0, 0, links, 0, len(entry.data), 0, 0, 0, 0, len(name), 0]
    header = b"070701" + b"".join(b"%08X" % field for field in fields)
    return _padded(header + name) + _padded(entry.data)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
