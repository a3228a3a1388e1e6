"""Every table, as statements see it. Nothing here creates one: `migrations/` does."""
