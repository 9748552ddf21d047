"""Accuracy cost and memory savings of frozen weights in 8 and 4 bits, compared with f32."""
