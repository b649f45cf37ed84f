"""Backbones: pictures and texts to features."""
