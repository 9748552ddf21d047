"""Training, judging and predicting from data in Python, by any backend's sessions."""
