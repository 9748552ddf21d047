"""The TVM backend: the entries' ONNX models, imported by TVM and compiled by LLVM.

It uses the ONNX backend's forms; nothing here depends on op names.
"""
