"""The GPU backend: one kernel text for CUDA, OpenCL and a CPU that checks it.

`kernels/` writes kernels in a subset of C99, over the names of `dialect/`: a prelude maps those to
a language. Sessions of the backend `gpu` run by `emulated.py`: on the CPU, item by item. Those of
`cuda` and `opencl` (`cuda.py`, `opencl.py`) are launched by a driver (`driven.py`): `source.py`
makes the text, `launches.py` writes tables for `runtime/`. `nvrtc.py` builds CUDA's text here,
OpenCL's driver its own when a session opens.
"""
