"""Google's Pub/Sub over gRPC (`google.pubsub.v1`), on the use cases that the HTTP API is on.

A project, a topic, a user and a token here are the ones of the HTTP API; subscriptions made here are parallel ones.
`docs/reference/pubsub.md` lists every field of every request.

protos      the types of requests and answers, as the package google-cloud-pubsub has them
names       resource names, and the rule for new ones
errors      one table from our errors to codes and texts of Google's
metadata    what a call says of itself before its first request: headers, and where its client is
doors       who is let in: by tokens, or as an emulator
wire        how much is in a request, looked at before it is parsed
calls       one call from its beginning to its end, what an error is answered with, what the audit log gets
fields      values that many requests have: durations, labels, masks, pages
resources   topics, subscriptions and snapshots as answers show them, and as requests ask for them
messages    from what is published to what is stored, and from what is stored to what is received
publisher, subscriber, leasing, streaming, schemas, iam
            the methods of each service: `rpcs` of each lists them
relaying    calls that another node has to answer
server      the port: TLS, limits, start and stop
"""
