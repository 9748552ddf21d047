"""Quantization: options, calibration, and ranges."""
