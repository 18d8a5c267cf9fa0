"""The start of the ``envkit`` script, and of ``python -m envkit``."""

import gc


def main() -> None:
    """Runs the command line."""
    # What modules make stays to the end.  By default the collector looks at it again with each 700 new objects, which
    # takes 15 ms of the imports of a check and 70 ms of a lock; what can be garbage between two looks is some MB.
    gc.set_threshold(50_000)

    from envkit.cli import main as run

    run()


if __name__ == "__main__":
    main()
