#!/bin/sh
# Runs zig inside a Bazel action. Zig builds a target's libc at first use and caches it: bazelw
# provides a persistent cache folder; without it the cache is deleted with the action.
cache=${XDG_CACHE_HOME:-$PWD/.zig}/pockengine/zig
export ZIG_GLOBAL_CACHE_DIR="$cache" ZIG_LOCAL_CACHE_DIR="$cache"
# The glob covers the prefix that Bazel adds to repositories of module extensions.
exec external/*zig/ziglang/site-packages/ziglang/zig "$@"
