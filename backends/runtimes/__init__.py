"""What backends of runtimes that only know inference share: a backend, layouts, checks."""
