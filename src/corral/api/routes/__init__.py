"""One file per noun; each exposes `router`."""
