"""The TVM backend: the entries' ONNX models, read by TVM and built ahead of time by LLVM.

The ONNX backend's forms are the only ones; nothing here knows an op by name.
"""
