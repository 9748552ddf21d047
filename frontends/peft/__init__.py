"""LoRA adapters in the files of Hugging Face's PEFT."""
