"""The audit log: who did which change, from where, when, and how it ended; and who failed to log in.

event       one line of it, as a value
lines       the file of JSON lines, only ever appended to
table       the table, only ever added to
records     what the table is asked
trail       the two together, as services record into them
"""
