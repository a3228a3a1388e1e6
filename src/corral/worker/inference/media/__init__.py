"""Models for images and speech."""
