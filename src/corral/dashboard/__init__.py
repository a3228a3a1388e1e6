"""The web pages of the manager: files alone, which use the public API."""
