"""The GPU backend: one kernel text for CUDA, OpenCL and a CPU that checks it.

`kernels/` writes kernels in a subset of C99, over the names of `dialect/`: a prelude maps those to
a language. Sessions of the backend `gpu` run by `emulated.py`: on the CPU, item by item. Those of
the backend `cuda` (`cuda.py`) launch by NVIDIA's driver: `source.py` makes the text, `nvrtc.py`
builds it, `launches.py` writes tables for `runtime/`. By `opencl_step.py` OpenCL runs one entry.
"""
