"""`ams push`: the push server as a program of its own, for this service or a reference one (push contract 2 to 8)."""
