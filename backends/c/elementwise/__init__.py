"""Elementwise loops, movement of data, and what ends a product."""
