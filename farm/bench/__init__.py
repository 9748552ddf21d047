"""Measurements on boards and comparisons with other frameworks: models trained, checked and
timed."""
