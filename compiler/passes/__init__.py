"""Passes: in-place rewrites of a graph, one file each; `pipeline` has their order."""
