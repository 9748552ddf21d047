"""Sparse schemes compared with full fine-tuning and LoRA, all in compiled C."""
