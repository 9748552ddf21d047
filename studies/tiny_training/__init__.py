"""Memory of tiny-training's published schemes, by their count and by our plan."""
