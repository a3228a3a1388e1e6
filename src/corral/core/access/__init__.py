"""API keys and secrets as values."""
