"""The Vulkan backend: the program that launches the kernels embeds them as SPIR-V.

Building needs Slang's compiler. Running needs `libvulkan.so.1` and a driver of Vulkan 1.2, loaded
when a session opens.
"""

import array
import re
from pathlib import Path

from pockengine.backends.gpu.code_cache import cached_code
from pockengine.backends.gpu.driven import DrivenBackend
from pockengine.backends.gpu.launches import image_symbol
from pockengine.backends.gpu.slang import OPTIONS, PROFILE, build_spirv, compiler_version
from pockengine.backends.gpu.source import VULKAN
from pockengine.backends.gpu.spirv import exact_module, shared_bytes
from pockengine.backends.picking import Picker, cheapest
from pockengine.backends.protocol import Built, Progress
from pockengine.compiler.program import Program
from pockengine.devices.schema import Device

KERNELS, IMAGE = "kernels.slang", "spirv.c"
"""Files in an artifact's folder `code`: the kernels, and their modules as C arrays."""

FORM = "2"
"""The version of the modules' C file, part of the key of the cache."""

IN_A_LINE = 16

_FUNCTION = re.compile(r"^#define PE_NAME (\w+)$", re.MULTILINE)


class VulkanBackend(DrivenBackend):
    """Writes programs for a device with a Vulkan driver; `pick` is as in the GPU backend."""

    def __init__(self, device: Device, pick: Picker = cheapest) -> None:
        super().__init__(device, (VULKAN, "Vulkan", KERNELS), pick=pick)

    def write(self, program: Program, folder: Path) -> None:
        """Write the kernels, the launching program, and the head of the modules' C file."""
        super().write(program, folder)
        symbol = image_symbol(program)
        head = f'#include "pe_vulkan.h"\n\n#define IMAGE {symbol}\n\n'
        (folder / IMAGE).write_text(head, encoding="utf-8")

    def build(self, code: Path, out: Path, progress: Progress | None = None) -> Built:
        """Build the kernels with Slang into the modules' C file, then the program."""
        if progress is not None:
            progress(f"building {KERNELS}")
        text = (code / KERNELS).read_text(encoding="utf-8")
        identity = [FORM, compiler_version(), PROFILE.decode(), repr(OPTIONS), text]
        with (code / IMAGE).open("ab") as file:
            file.write(cached_code(identity, lambda: _modules_text(text).encode()))
        return super().build(code, out, progress)


def _modules_text(text: str) -> str:
    """Return the body of the modules' C file: an array for each kernel, and their table."""
    names = _FUNCTION.findall(text)
    modules = [exact_module(module) for module in build_spirv(text, names)] if names else []
    arrays = [
        f"static const uint32_t words_{number}[] = {{\n{_words(module)}\n}};\n"
        for number, module in enumerate(modules)
    ]
    rows = [
        f'    {{"{name}", words_{number}, {len(module)}, {shared_bytes(module)}}},'
        for number, (name, module) in enumerate(zip(names, modules, strict=True))
    ]
    return "\n".join(
        [
            *arrays,
            "static const pe_vulkan_module modules[] = {",
            *rows,
            "    {NULL, NULL, 0, 0},",
            "};\n",
            "extern const pe_gpu_image IMAGE;",
            'const pe_gpu_image IMAGE = {"", 0, (const unsigned char *)modules};\n',
        ]
    )


def _words(module: bytes) -> str:
    words = array.array("I", module)
    rows = (words[start : start + IN_A_LINE] for start in range(0, len(words), IN_A_LINE))
    return "\n".join("    " + " ".join(f"{word}u," for word in row) for row in rows)
