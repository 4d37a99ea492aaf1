"""Random clients, the history of their attempts, and laws over it; for fault campaigns and simulated worlds."""
