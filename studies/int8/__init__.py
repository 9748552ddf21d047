"""What training in int8 costs in accuracy, and what quantisation-aware scaling (QAS) gives back."""
