"""Where each subscription stands.

base                     the promise of a cursor store, and the rules of a cursor that every engine goes by
sqlite                   the embedded shape: in memory, and durable in a SQLite database of its own
postgresql               the cluster shape: keeps nothing in memory that another node needs
postgresql_connection    connections that come back by themselves; calls of one turn go as one statement
postgresql_rows          a cursor as a row, and the statements over such rows
"""
