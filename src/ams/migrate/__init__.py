"""Moving from the reference: its database and messages as lines of an export that `ams import` takes.

documents    the collections of its database, read whole
converting   documents to lines, and what of them does not go over as it is
sources      its MongoDB and Kafka, opened together; its messages as ours
asking       how both services are asked
writing      the plan of a move, and all of it as a file
copying      rounds into an installation that nobody serves yet
cutting      the cut: clients held by haproxy, the rest copied, services changed
back         messages and positions since the cut given to the old service
verifying    the new service held to both
comparing    answers of two services to one request, and which differences are right
shadow       two services asked what clients asked for

`docs/how-to/move-from-the-reference.md` says what becomes of what.
"""
