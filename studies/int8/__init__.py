"""The accuracy cost of int8 training, and the gain by quantization-aware scaling (QAS)."""
