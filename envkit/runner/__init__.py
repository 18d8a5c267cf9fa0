"""Sends the payload to where it runs (a container or a Python here) and reads back the one document that counts."""
