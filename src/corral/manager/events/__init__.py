"""Live events, and those that were kept."""
