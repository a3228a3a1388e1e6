"""Which models should be in memory where."""
