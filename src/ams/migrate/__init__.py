"""Moving from the reference: its database and messages as lines of an export that `ams import` takes.

documents    the collections of its database, read whole
converting   documents to lines, and what of them does not go over as it is
records      its messages in Kafka, and what of those does not go over as it is
asking       its API, which takes messages and positions back
sources      its MongoDB and Kafka, opened together
writing      both together as a file
copying      rounds into an installation that nobody serves yet
reading      long topics read in processes of their own
cutting      the cut: clients held, the rest copied, services changed
proxy        haproxy, which holds clients and leads them
back         messages and positions since the cut given to the old service
verifying    the new service held to both
comparing    answers of two services to one request, and which differences are right
side         one of the two, and how it is asked
haproxy_log  requests in lines of a log
shadow       two services asked what clients asked for

`docs/how-to/move-from-the-reference.md` says what becomes of what.
"""
