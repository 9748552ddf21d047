"""The accuracy cost of int8 training, and the gain by quantisation-aware scaling (QAS)."""
