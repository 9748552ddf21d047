"""The C backend: shape-specialised C11 kernels, the small runtime, and the toolchain that builds them."""
