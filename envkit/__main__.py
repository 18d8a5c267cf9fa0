"""The start of the ``envkit`` script, and of ``python -m envkit``."""

import gc
import signal


def main() -> None:
    """Runs the command line."""
    # Ctrl-C ends the imports below at once.  As an exception it can fall into a callback of the import system, whose
    # exceptions Python drops, and what was to be stopped goes on.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # What modules make stays to the end.  By default the collector looks at it again with each 700 new objects, which
    # takes 15 ms of the imports of a check and 70 ms of a lock; what can be garbage between two looks is some MB.
    gc.set_threshold(120_000)

    from envkit.cli import main as run

    run()


if __name__ == "__main__":
    main()
