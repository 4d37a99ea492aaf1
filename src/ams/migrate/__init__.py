"""Migration from the reference: converts its database and messages to lines of an export for `ams import`.

    conversion     converts documents to lines, and reports what is changed or left out
    sources        reads its MongoDB and Kafka
    requests       requests to both services
    message_copy   the plan of a move, its export as a file, and copy rounds into an installation that is not served yet
    cutover        the cut: holds clients at haproxy, copies the rest, switches services
    rollback       returns messages and positions since the cut to the old service
    verification   compares the new service with the old data and the old service
    comparison     compares answers of two services, with a list of accepted differences
    shadow         sends real requests to both services

`docs/how-to/move-from-the-reference.md` has the mapping.
"""
