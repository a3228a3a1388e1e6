"""The truth: the only room that knows SQL. Nothing here decides; it records."""
