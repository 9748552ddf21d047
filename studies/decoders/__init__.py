"""Which parts of a small decoder are worth training: contributions, searched schemes, presets."""
