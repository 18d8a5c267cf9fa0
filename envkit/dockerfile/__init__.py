"""Reads Dockerfiles: the text, the shell in it, what its commands install, and what the build would contain."""
