"""Google's Pub/Sub (`google.pubsub.v1`) over gRPC and REST, on the use cases that the HTTP API is on.

A project, a topic, a user and a token here are the ones of the HTTP API; subscriptions made here are parallel ones.
`docs/reference/pubsub.md` lists every field of every request.

protos      the types of requests and answers, as the package google-cloud-pubsub has them
errors      one table from our errors to codes and texts of Google's, and how a call ends with one
requests    requests as they come: headers, where the client is, and how much is in one before it is parsed
relaying    calls that another node has to answer
fields      values that many requests have: resource names, durations, labels, masks, pages
calls       who is let in, one call from its beginning to its end, and what the audit log gets
resources   topics, subscriptions and snapshots as answers show them, and as requests ask for them
messages    from what is published to what is stored, and from what is stored to what is received
publisher, subscriber, leasing, streaming, schemas, iam
            the methods of each service: `rpcs` of each lists them
rest        requests of HTTP/1.1 as calls of these methods; errors in Google's envelope
bindings    which HTTP request is which method, and the description from which clients make theirs
transcoding from JSON to requests, and from answers to JSON
server      the port: limits, start and stop, of both transports
"""
