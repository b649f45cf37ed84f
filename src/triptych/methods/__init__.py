"""What each paper adds to a backbone: one paper a file, listed by :mod:`triptych.methods.registry`."""
