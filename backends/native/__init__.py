"""Shared parts of backends that generate C: kernel text, programs, toolchains, sessions,
runtime.
"""
