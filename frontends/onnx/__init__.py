"""ONNX: model files to graphs."""
