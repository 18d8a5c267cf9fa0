"""Lets ``python -m envkit`` do what the ``envkit`` script does."""

from envkit.cli import main

if __name__ == "__main__":
    main()
