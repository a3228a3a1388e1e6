"""The runners of a worker: started, kept warm, replaced."""
