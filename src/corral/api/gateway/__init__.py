"""Apps behind the gateway, and requests to them."""
