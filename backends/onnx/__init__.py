"""The ONNX backend: each entry of a planned program as an ordinary ONNX model.

The models use inference operators only, so that an inference runtime can train with them: trained
weights and states are inputs and outputs.
"""
