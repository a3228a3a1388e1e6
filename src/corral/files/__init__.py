"""Folders by content: read, walked, packed."""
