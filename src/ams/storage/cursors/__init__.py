"""Where each subscription stands.

base                     the promise of a cursor store, and the rules of a cursor that every engine goes by
acks                     the promise of a store of what is done of parallel subscriptions, and its step
entries                  what is done, as the bytes that a store keeps
sqlite                   the embedded shape: in memory, and durable in a SQLite database of its own
sqlite_groups            what is in memory of a cursor and what on disk, and groups on their way there
sqlite_rows              a cursor as a row, and the statements over such rows
sqlite_acks              entries as rows, written with the cursors
postgresql               the cluster shape: keeps nothing in memory that another node needs
postgresql_acks          entries as rows that go by the version of their cursor's row
postgresql_losses        what retention took before it was acknowledged, added up
postgresql_connection    connections that come back by themselves; calls of one turn go as one statement
postgresql_rows          a cursor as a row, and the statements over such rows
"""
