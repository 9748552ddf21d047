"""The compiler: a framework's graph in, a planned training program out."""
