"""The accuracy cost of frozen weights and optimiser states in fewer bits."""
