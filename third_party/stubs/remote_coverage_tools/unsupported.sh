#!/bin/sh
echo "bazel coverage is not supported here; run coverage.py beside pytest instead" >&2
exit 1
