"""The HTTP face of the manager: checks callers, decodes, calls a verb, encodes."""
