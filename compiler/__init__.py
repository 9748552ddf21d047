"""The compiler: lowers a framework's graph to a training program with planned memory."""
