"""Training, evaluation and prediction from data in Python, with any backend's sessions."""
