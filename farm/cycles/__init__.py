"""Modelled milliseconds: a core's pipeline, caches and branch predictor under QEMU's execution."""
