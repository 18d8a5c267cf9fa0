"""What goes with a command under `envkit debug`: a supervisor around it and a companion inside its Pythons.

The folder itself stands in the command's PYTHONPATH, so its modules carry the product's name; nothing in it imports
the rest of the payload.
"""
