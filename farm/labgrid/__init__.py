"""Boards from labgrid's coordinator."""
