"""The C backend: shape-specialised C11 kernels, a small runtime, and their build."""
