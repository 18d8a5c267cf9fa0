"""A launch: an image on a machine for a job, put together from options of ``docker run``; ``envkit preflight``."""
