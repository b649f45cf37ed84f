"""Layers with parameters that methods add to a backbone; each starts from a generator, never a global one."""
