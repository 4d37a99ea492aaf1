"""Google's own clients for Pub/Sub beside the official library of AMS, on one topic.

    python -m demo.pubsub

    publisher.py ──gRPC──▶ topic readings ─┬─▶ subscription stations (parallel) ──gRPC──▶ 4 × subscriber.py, 2 killed
                                           │             └─▶ topic broken-readings: what nobody can handle
                                           └─▶ subscription archive (ordered) ──HTTP──▶ reader.py, the official library

Publisher and subscribers are programs of Google's client for Python, changed in nothing but the endpoint: they log in
by a service account file. Each message has an ordering key. Who gets messages writes them down with the time before it
acknowledges them. In the end `books.py` compares that with what was published: no message may be missing on either
side, those of each key must have come in order, and the one that always fails has to be in the dead letter topic.

Read it in this order: `site` (what there is), `publisher`, `subscriber`, `reader` (the programs), `programs` (how they
are started), `books`, `__main__`. How programs are watched, killed and stopped is in `demo.workers`.
"""
