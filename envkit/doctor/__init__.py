"""``envkit doctor``: a machine or a saved one, what its owner requires of it, and names taken out of what is saved."""
