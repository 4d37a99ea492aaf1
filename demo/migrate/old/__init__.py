"""A stand-in for the reference: its HTTP API over MongoDB and Kafka, for machines that cannot build the original.

It keeps documents and records in the form the reference keeps them in, with its ways: cursors in documents, records as
JSON, ids told before the record is written, empty records for attributes with a quote, acknowledgements by the second.
It answers what clients of the demo, a push server and a comparison ask, and the changes that a test makes; no more.

documents    documents as the API shows them, errors, roles by which requests are allowed, changes by administrators
broker       records in Kafka
service      the routes
"""
