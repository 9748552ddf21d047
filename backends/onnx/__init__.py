"""The ONNX backend: each entry of a planned program as an ordinary ONNX model.

The models have inference operators only, so that a runtime that knows nothing of training trains
with them: weights and states that training writes are inputs and outputs.
"""
