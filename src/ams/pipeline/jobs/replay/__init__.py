"""Archived messages published again, also those that the service keeps no longer."""
