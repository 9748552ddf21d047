"""What frozen weights in 8 and 4 bits cost in accuracy, and what they save, beside f32."""
