"""An artifact as a C library: headers, archives, CMake and pkg-config files.

include/                     pe.h and the headers beside it, the program's own header, a module map
lib/libpockengine-NAME.a     everything but the runner; also .so if the target has one
lib/pockengine-NAME.wasm     for wasm32: a module for JavaScript
lib/cmake/pockengine-NAME/   find_package(pockengine-NAME): pockengine::NAME
lib/pkgconfig/               pockengine-NAME.pc
code/CMakeLists.txt          the same target from its sources, by any toolchain (the NDK's)

A device without an operating system has the headers, the archive, CMakeLists.txt, and
lib/memory.txt, its use of flash and memory.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

from pockengine import __version__
from pockengine.backends.native.build import (
    archive,
    compile_all,
    compile_flags,
    link_library,
    link_module,
)
from pockengine.backends.native.interface import (
    header_name,
    header_text,
    identifier,
    program_symbol,
)
from pockengine.backends.native.runtime_files import (
    FIRMWARE,
    LIBRARY,
    is_runner,
    runtime_file,
)
from pockengine.backends.native.sections import sections_table, shares
from pockengine.compiler.program import Program
from pockengine.devices.schema import Device

HEADERS = ("pe.h", "pe_limits.h")
HOSTED_HEADERS = (
    *("pe_host.h", "pe_train.h", "pe_adapter.h", "pe_generate.h"),
    *("pe_tokenizer.h", "pe_chat.h", "pe_texts.h"),
)
"""Headers that need an operating system."""
MODULE_EXPORTS = (
    *("malloc", "free", "pe_open_by", "pe_shut", "pe_call", "pe_message"),
    *("pe_get_param", "pe_set_param"),
)
"""Functions that a WebAssembly module exports beside its program; none of them uses files."""
CALLER_FLAG = "-fno-strict-aliasing"
"""The caller allocates a session's memory as bytes, which the program accesses as other types."""
SHARED_OBJECTS = ("linux", "native")
"""Parts of target names whose shared libraries are called .so."""


def package(
    program: Program, device: Device, code: Path, place: Path, libraries: Sequence[str] = ()
) -> None:
    """Write include/ and lib/ of an artifact into its folder; `code` holds its sources.

    `libraries` are additional system libraries of its programs.
    """
    name = f"pockengine-{identifier(program.name)}"
    include, lib = place / "include", place / "lib"
    include.mkdir()
    for header in (*HEADERS, *(() if device.freestanding else HOSTED_HEADERS)):
        shutil.copyfile(runtime_file(header), include / header)
    (include / header_name(program.name)).write_text(header_text(program), encoding="utf-8")
    if not device.freestanding:
        (include / "module.modulemap").write_text(_module_map(program.name), encoding="utf-8")
    lib.mkdir()
    objects = [obj for source, obj in compile_all(code, device) if not is_runner(source)]
    archive(device, objects, lib / f"lib{name}.a")
    if device.freestanding:
        table = sections_table(shares(program, objects), device)
        (lib / "memory.txt").write_text(table, encoding="utf-8")
    else:
        _package_for_system(name, device, objects, lib=lib, libraries=libraries)


def _package_for_system(
    name: str, device: Device, objects: Sequence[Path], lib: Path, libraries: Sequence[str]
) -> None:
    """Write the files for apps on an operating system: shared library, CMake, pkg-config."""
    shared = device.cpu.arch != "hexagon" and any(
        part in device.toolchain.target for part in SHARED_OBJECTS
    )
    if device.wasm:
        symbol = program_symbol(name.removeprefix("pockengine-"))
        link_module(device, objects, lib / f"{name}.wasm", (*MODULE_EXPORTS, symbol))
    if shared:
        link_library(device, objects, lib / f"lib{name}.so", libraries)
    cmake = lib / "cmake" / name
    cmake.mkdir(parents=True)
    # CMake looks for NAMEConfig.cmake, and with a hyphen for names in lower case only.
    config = _cmake_config(name, shared, libraries)
    (cmake / f"{name}Config.cmake").write_text(config, encoding="utf-8")
    version = _cmake_version(__version__)
    (cmake / f"{name}ConfigVersion.cmake").write_text(version, encoding="utf-8")
    pkgconfig = lib / "pkgconfig"
    pkgconfig.mkdir()
    (pkgconfig / f"{name}.pc").write_text(_pkg_config(name, libraries), encoding="utf-8")


def _module_map(name: str) -> str:
    """Return the headers as a module of Clang and Swift."""
    headers = (*HEADERS, *HOSTED_HEADERS, header_name(name))
    lines = [f"module PockEngine_{identifier(name)} {{"]
    lines += [f'    header "{header}"' for header in headers]
    return (
        "\n".join([*lines, f'    link "pockengine-{identifier(name)}"', "    export *", "}"]) + "\n"
    )


def _cmake_config(name: str, shared: bool, libraries: Sequence[str]) -> str:
    """Return a CMake package config: targets of the archive and the shared library."""
    target = f"pockengine::{name.removeprefix('pockengine-')}"
    linked = ["Threads::Threads", "m", *libraries]
    lines = [
        "# find_package(Threads) is the caller's where CMake knows its compiler for C alone.",
        "include(CMakeFindDependencyMacro)",
        "find_dependency(Threads)",
        'get_filename_component(_pockengine "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)',
        *_imported(target, "STATIC", f"lib{name}.a", ";".join(linked)),
    ]
    if shared:
        lines += _imported(f"{target}-shared", "SHARED", f"lib{name}.so", "")
    return "\n".join([*lines, "unset(_pockengine)"]) + "\n"


def _cmake_version(version: str) -> str:
    """Return the CMake version file; below 1.0 each minor version is incompatible."""
    major, minor = version.split(".")[:2]
    series = f"{major}.{minor}" if major == "0" else major
    return (
        "\n".join(
            [
                f'set(PACKAGE_VERSION "{version}")',
                f'string(REGEX MATCH "^{series.replace(".", "[.]")}([.]|$)" _pockengine '
                '"${PACKAGE_FIND_VERSION}")',
                "if(_pockengine AND NOT PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION)",
                "  set(PACKAGE_VERSION_COMPATIBLE TRUE)",
                "endif()",
                "if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)",
                "  set(PACKAGE_VERSION_EXACT TRUE)",
                "endif()",
                "unset(_pockengine)",
            ]
        )
        + "\n"
    )


def _imported(target: str, kind: str, file: str, links: str) -> list[str]:
    return [
        f"if(NOT TARGET {target})",
        f"  add_library({target} {kind} IMPORTED)",
        f"  set_target_properties({target} PROPERTIES",
        f'    IMPORTED_LOCATION "${{_pockengine}}/lib/{file}"',
        '    INTERFACE_INCLUDE_DIRECTORIES "${_pockengine}/include"',
        f'    INTERFACE_COMPILE_OPTIONS "{CALLER_FLAG}"',
        f'    INTERFACE_LINK_LIBRARIES "{links}")',
        "endif()",
    ]


def _pkg_config(name: str, libraries: Sequence[str]) -> str:
    linked = [f"-l{library}" for library in (name, "m", "pthread", *libraries)]
    return (
        "prefix=${pcfiledir}/../..\n\n"
        f"Name: {name}\n"
        "Description: A program that PockEngine compiled\n"
        f"Version: {__version__}\n"
        f"Cflags: -I${{prefix}}/include {CALLER_FLAG}\n"
        f"Libs: -L${{prefix}}/lib {' '.join(linked)}\n"
    )


def cmake_lists(
    program: Program,
    device: Device,
    libraries: Sequence[str] = (),
    folders: Sequence[str] = LIBRARY,
) -> str:
    """Return CMakeLists.txt of a program's code, for toolchains other than zig's.

    `folders` are those of the runtime that a program of an operating system takes.
    """
    name = f"pockengine-{identifier(program.name)}"
    others = ("-std", "-g", "-fPIC", "-O", "-Werror", CALLER_FLAG)
    flags = [flag for flag in compile_flags(device) if not flag.startswith(others)]
    taken = [f"runtime/{each}" for each in (FIRMWARE if device.freestanding else folders)]
    included = ["", *(f"/{folder}" for folder in ("runtime", *taken))]
    linked = " ".join(("Threads::Threads", "m", *libraries))
    link = f"target_link_libraries({name} PUBLIC {linked})"
    return "\n".join(
        [
            "# add_subdirectory(code) gives the target below; the caller's CMAKE_C_FLAGS name the",
            f"# CPU ({device.cpu.model}), for example -march=armv8-a.",
            "cmake_minimum_required(VERSION 3.13)",
            f"project({name} C)",
            *([] if device.freestanding else ["find_package(Threads REQUIRED)"]),
            f'file(GLOB SOURCES CONFIGURE_DEPENDS "*.c" {_patterns(taken)})',
            'list(FILTER SOURCES EXCLUDE REGEX "/main[.]c$")',
            f"add_library({name} STATIC ${{SOURCES}})",
            f"add_library(pockengine::{identifier(program.name)} ALIAS {name})",
            f"set_target_properties({name} PROPERTIES C_STANDARD 11 C_EXTENSIONS ON",
            "  POSITION_INDEPENDENT_CODE ON)",
            f"target_compile_options({name} PUBLIC {CALLER_FLAG} PRIVATE -O3 {' '.join(flags)})",
            f"target_include_directories({name} PUBLIC",
            *(f'  "${{CMAKE_CURRENT_SOURCE_DIR}}{folder}"' for folder in included),
            ")",
            *([] if device.freestanding else [link, *_android(name)]),
            "",
        ]
    )


def _android(name: str) -> list[str]:
    """Return link options for Android apps: NDKs before r28 align to pages of 4 KB only."""
    return [
        "if(ANDROID)",
        f"  target_link_options({name} INTERFACE -Wl,-z,max-page-size=16384)",
        "endif()",
    ]


def _patterns(folders: Sequence[str]) -> str:
    return " ".join(f'"{folder}/*.c"' for folder in folders)
