"""Updates of params, and block-quantised weights."""
