"""`corral top`: the cluster on a terminal, kept up to date, steered by keys."""
