"""The honest comparison: sparse schemes beside full fine-tuning and LoRA, all in compiled C."""
