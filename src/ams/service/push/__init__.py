"""The use cases of push delivery: configurations, who delivers what, its state, and dead letters."""
