"""``envkit explain``: what is given, read within bounds; the explanation as text, JSON and a page."""
