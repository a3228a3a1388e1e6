"""Why a task waits or runs where it does, and what would help."""
