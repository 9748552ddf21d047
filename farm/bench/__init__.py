"""Measurements on boards and beside other frameworks: models trained, checked and timed."""
