"""Elementwise loops, data movement, and epilogues of products."""
