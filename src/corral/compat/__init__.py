"""Adapters for people who come from other systems; each costs only who imports it."""
