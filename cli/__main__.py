"""`python -m pockengine.cli`."""

from pockengine.cli.main import main

if __name__ == "__main__":
    main()
