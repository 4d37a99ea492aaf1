"""Pushers: the workers that deliver inside the service, and the engines as their upstream."""
