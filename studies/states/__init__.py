"""What frozen weights and optimiser states in fewer bits cost in accuracy."""
