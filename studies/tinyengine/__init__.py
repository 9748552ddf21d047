"""A training step of TinyEngine's own net on a microcontroller, beside ours."""
