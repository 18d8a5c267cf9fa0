"""envkit makes GPU container environments pinned, proven and explained."""

__version__ = "0.1.0"
