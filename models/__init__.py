"""Benchmark models as plain PyTorch modules.

`registry.parse_model("mobilenet_v2-0.35-96")` needs no torch; only building a model does.
"""
