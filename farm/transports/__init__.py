"""Transports to boards: run, put, get, console and power, over each kind of connection."""
