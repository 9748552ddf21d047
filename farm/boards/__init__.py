"""Boards: the inventory, enrolling and opening a board, and its facts."""
