"""Boards of many labs, taken from labgrid's coordinator."""
