"""PockEngine: compile the whole training step of a model ahead of time, for the device it runs on."""

__version__ = "0.1.0"
