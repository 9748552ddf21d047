"""What backends that write C share: kernels' text, programs, toolchains, sessions, the runtime."""
