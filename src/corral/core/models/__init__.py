"""Models as values: what they are, and where their files come from."""
