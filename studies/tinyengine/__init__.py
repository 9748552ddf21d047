"""A training step of TinyEngine's own net on a microcontroller, compared with ours."""
