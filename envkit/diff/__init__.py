"""``envkit diff``: what a change of a lock means, two images file by file, two machines side by side."""
