"""Migration from the reference: converts its database and messages to lines of an export for `ams import`.

    documents    reads the collections of its database
    converting   converts documents to lines, and reports what is changed or left out
    sources      its MongoDB and Kafka
    asking       requests to both services
    writing      the plan of a move, and its export as a file
    copying      copy rounds into an installation that is not served yet
    cutting      the cut: holds clients at haproxy, copies the rest, switches services
    back         returns messages and positions since the cut to the old service
    verifying    compares the new service with the old data and the old service
    comparing    compares answers of two services, with a list of accepted differences
    shadow       sends real requests to both services

`docs/how-to/move-from-the-reference.md` has the mapping.
"""
