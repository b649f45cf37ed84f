"""Figures: what the papers draw, from finished runs and data; numbers by one function, the drawing by another."""
