"""Backends: a planned Program in, code for one kind of target out."""
