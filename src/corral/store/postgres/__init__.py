"""PostgreSQL as the store."""
