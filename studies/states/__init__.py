"""The accuracy cost of frozen weights and optimizer states in fewer bits."""
