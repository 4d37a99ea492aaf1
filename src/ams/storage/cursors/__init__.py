"""Where each subscription stands.

base                     the promise of a cursor store, and the rules of a cursor that every engine goes by
acks                     the promise of a store of acknowledgements one by one, and its step
entries                  acknowledgements as the bytes that a store keeps
embedded                 the embedded shape: in memory, and durable as records of the log
embedded_rows            cursors and entries as bytes of these records, and groups of changes on their way there
postgresql               the cluster shape: keeps nothing in memory that another node needs
postgresql_rows          cursors and entries as rows that go by a version
mover                    moves of cursors there: calls of one turn go as one statement
"""
