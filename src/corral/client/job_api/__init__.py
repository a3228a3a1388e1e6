"""ClusterManager, Node and workers as Python code holds them."""
