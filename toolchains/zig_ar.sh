#!/bin/sh
exec toolchains/zig_run.sh ar "$@"
