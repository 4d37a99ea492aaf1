"""The audit log: changes with actor, address, time and result, and failed logins.

- event: an event and its JSON
- records: the append-only table and its queries
- trail: the file of JSON lines that services write to, and from which the table is filled; failed logins
"""
