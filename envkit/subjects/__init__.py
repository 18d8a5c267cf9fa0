"""What is judged: frozen records of one thing as it was observed, each value with how it was found.

A subject can be written to JSON and read back with nothing lost, so that it can be judged elsewhere.
"""

from envkit.subjects.host import Host
from envkit.subjects.image import Image
from envkit.subjects.smoke import SmokeRun

__all__ = ["Host", "Image", "SmokeRun"]
