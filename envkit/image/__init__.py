"""Images: what goes in, what comes back."""
