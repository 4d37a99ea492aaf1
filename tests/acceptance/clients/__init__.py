"""Helpers of the tests with real clients: requests, programs, and Google's libraries."""
