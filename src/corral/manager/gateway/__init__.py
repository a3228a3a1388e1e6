"""HTTP services behind the gateway, and calls to them."""
