"""Cursors: the committed offset of each subscription, and acknowledgements of single messages.

- `base`: protocol of a cursor store; state machine of a cursor.
- `acks`: protocol and state machine for acknowledgements of single messages.
- `entries`: encoding of acknowledgements.
- `embedded`: store of one node: in memory, durable in the log.
- `embedded_rows`: encoding of cursors and of groups of changes.
- `postgresql`: store of clusters: batched updates of rows; no state in memory that other nodes need.
- `postgresql_rows`: cursors and entries as rows with a version.
"""
