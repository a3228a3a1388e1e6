"""Models: the catalogue, who has which in memory, and moving them."""
