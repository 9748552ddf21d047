"""Cycle model: a core's pipeline, caches and branch predictor, driven by QEMU."""
