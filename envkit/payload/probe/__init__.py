"""What this Python's torch maps and binds: ``outer`` starts children like a user's process, ``inner`` runs in them."""
