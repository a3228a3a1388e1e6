"""`corral up` and `corral down`: a cluster on this machine."""
