"""Boards: the inventory, how a board is added and opened, what it says of itself."""
