"""Integer products and windows."""
