"""Frontends: import a framework's model as a forward `Graph`.

Each framework has a package, which registry.py loads for a model of it. This package has their
shared parts: the emitter of ops, losses, idioms, error reports.
"""
