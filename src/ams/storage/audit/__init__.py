"""The audit log: who did which change, from where, when, and how it ended; and who failed to log in.

event       one event: a value, a line of the file, an item of a list
records     the table, to which rows are only added, and its queries
trail       the file of JSON lines, and the table that follows it, as services record into them; failed logins
"""
