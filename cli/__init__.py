"""The command line: `main` is the group of commands, and each other module is one of them."""
