"""Frontends: a framework's model becomes a forward `Graph`.

Each framework has a package, which registry.py loads when a model of it comes. What this package
itself has is shared by them: the emitter of ops, losses, idioms, reports of problems.
"""
