"""The page for review: its style and its script."""
