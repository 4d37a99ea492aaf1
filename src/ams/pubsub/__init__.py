"""Google's Pub/Sub API (`google.pubsub.v1`) over gRPC and REST, on the same use cases as the HTTP API.

Projects, topics, users and tokens are those of the HTTP API; subscriptions made here are parallel ones.
`docs/reference/pubsub.md` lists every field of every request.

    protos      types of requests and answers, from the package google-cloud-pubsub
    errors      maps our errors to Google's codes and texts, and ends calls with them
    requests    headers and address of a call, and size checks before a request is parsed
    forwarding  forwards calls to the node that owns a subscription
    fields      common values: resource names, durations, labels, masks, pages
    calls       admission, life cycle and audit of a call
    resources   converts topics, subscriptions and snapshots
    messages    converts published and received messages
    publisher, subscriber, streaming_pull, schemas, iam
                the methods of each service, bound by their names (`bind_rpcs`)
    rest        HTTP/1.1 requests as calls of these methods; Google's error format
    bindings    routes and actions of methods, and the discovery document
    transcoding JSON to requests, and answers to JSON
    server      the port of both transports: limits, start and stop
"""
