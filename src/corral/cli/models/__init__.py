"""Commands for models."""
