"""The C backend: shape-specialised C11 kernels, the small runtime, and the build of both."""
