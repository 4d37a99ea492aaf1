"""Moving from the reference: what it keeps in MongoDB and Kafka, as lines of an export that `ams import` takes.

documents    the collections of its database, read whole
converting   documents to lines, and what of them does not go over as it is
records      its messages in Kafka, and what of those does not go over as it is
writing      both together as a file
verifying    the new service held to both
comparing    answers of two services to one request, and which differences are right
haproxy_log  requests in lines of a log
shadow       two services asked what clients asked for

`docs/how-to/move-from-the-reference.md` says what becomes of what.
"""
