"""The farm's programs: `bazel run //farm` in main.py and `bazel run //farm:bench` in bench.py."""
