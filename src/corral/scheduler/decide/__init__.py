"""Which task goes to which worker, and what must make room for it."""
