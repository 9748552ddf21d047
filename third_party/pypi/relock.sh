#!/usr/bin/env bash
# Pins every set again. Needs pip-tools (`pip install pip-tools`) under Python 3.11; pip's own configuration says where wheels come from.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

lock() {
  local set=$1
  shift
  echo "locking $set" >&2
  pip-compile --quiet --strip-extras --generate-hashes --no-emit-index-url \
    --no-emit-find-links --no-emit-trusted-host --output-file="$set.lock" "$@" "$set.in"
}

lock pypi --allow-unsafe
lock torch --unsafe-package=torch
lock tensorflow --allow-unsafe
lock jax --allow-unsafe
lock onnx --allow-unsafe
lock ort --allow-unsafe
lock mnn
lock report --allow-unsafe
lock search --allow-unsafe
lock labgrid --allow-unsafe
lock postgres --allow-unsafe
lock postgres_server --allow-unsafe
lock lint --allow-unsafe
lock zig
