"""Models: the catalogue, their sources, and who has which in memory."""
