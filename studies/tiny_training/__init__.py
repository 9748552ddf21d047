"""What tiny-training's published schemes need, by their count and by our plan."""
