"""The GPU backend: one kernel text for CUDA, OpenCL, Vulkan, and an emulation on the CPU.

`kernels/` writes kernels in a subset of C99, over the names of `dialect/`: a prelude maps those to
a language. Sessions of the backend `gpu` run by `emulated.py`: on the CPU, item by item. Those of
`cuda`, `opencl` and `vulkan` (a module each) are launched by a driver (`driven.py`): `source.py`
assembles the text, `launches.py` writes tables for `runtime/`. `nvrtc.py` compiles CUDA's text on
this machine, `slang.py` that of Vulkan; an OpenCL driver compiles its text when a session opens.
"""
