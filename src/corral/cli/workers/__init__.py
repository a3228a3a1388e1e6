"""Commands for workers."""
