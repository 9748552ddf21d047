"""Shared parts of backends for inference-only runtimes: a backend, layouts, checks."""
