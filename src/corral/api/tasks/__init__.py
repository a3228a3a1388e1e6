"""Tasks over HTTP: submit, look, wait, cancel, explain."""
