"""Updates of params, and block-quantized weights."""
