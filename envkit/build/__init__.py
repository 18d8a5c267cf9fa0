"""From a lock to an image: the Dockerfile and other renderings, a folder with all inputs, ``envkit up``."""
