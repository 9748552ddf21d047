"""Measurements: records, their database, and regressions."""
