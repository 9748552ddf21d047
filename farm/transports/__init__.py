"""How a board is reached: run, put, get, console and power, over each kind of connection."""
