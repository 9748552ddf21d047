"""Dependencies of kernel modules, and their load order.

Each module lists its dependencies in its `.modinfo` section (`depends=a,b`), so they need not be
listed here per kernel version. A requested module without a file is built into the kernel.
"""

import re
from collections.abc import Iterable, Mapping

DEPENDS = re.compile(rb"\0depends=([^\0]*)\0")


def load_order(modules: Mapping[str, bytes], requested: Iterable[str]) -> list[str]:
    """Return `plain_name`s of modules, each after its dependencies."""
    order: list[str] = []

    def visit(name: str) -> None:
        if name in modules and name not in order:
            for other in depends(modules[name]):
                visit(other)
            order.append(name)

    for name in requested:
        visit(name)
    return order


def depends(module: bytes) -> list[str]:
    """Return the dependencies listed in a module's file."""
    match = DEPENDS.search(module)
    return [plain_name(name) for name in match[1].decode().split(",") if name] if match else []


def plain_name(name: str) -> str:
    """Return a module's name in the kernel's normal form: "-" and "_" are equal."""
    return name.replace("-", "_")
