"""Keys and secrets."""
