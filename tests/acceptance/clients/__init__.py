"""What stands behind tests with real clients: their requests, their programs, and Google's libraries."""
