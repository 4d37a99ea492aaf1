"""The job `federation`: which configurations of services a federation registry wants, and which are in place."""
