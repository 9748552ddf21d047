#!/bin/sh
# Runs zig inside a Bazel action. Zig builds a target's libc at its first use and keeps it: bazelw
# names a cache folder that lasts; without it, it lasts as long as the action.
cache=${XDG_CACHE_HOME:-$PWD/.zig}/pockengine/zig
export ZIG_GLOBAL_CACHE_DIR="$cache" ZIG_LOCAL_CACHE_DIR="$cache"
# Bazel prefixes the name of a repository that a module extension makes.
exec external/*zig/ziglang/site-packages/ziglang/zig "$@"
