"""The job `alarms`: what monitoring says is wrong, in PostgreSQL, one row an alarm and all of its history."""
