"""What enters an image: one zip of plain Python that observes and prints one JSON document.

Standard library only, syntax of Python 3.8, nothing written to the image, no opinion on what it sees.
"""
