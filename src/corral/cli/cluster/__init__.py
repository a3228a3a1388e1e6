"""Commands that look at the whole cluster."""
