"""The audit log: who did which change, from where, when, and how it ended; and who failed to log in.

event       one line of it, as a value
shape       how an event is written down: a line of the file, an item of a list
lines       the file of JSON lines, only ever appended to
table       the table, only ever added to
records     what the table is asked
asking      the list as it is served: filters in, answer out
trail       the two together, as services record into them
logins      failed logins, counted, limited, and recorded without end or flood
"""
