"""The C backend: shape-specialized C11 kernels, a small runtime, and their build."""
