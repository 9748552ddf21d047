"""Backends: generate code for one kind of target from a planned Program."""
