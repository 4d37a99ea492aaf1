"""Push: reaching endpoints of others over https, safely, and delivering messages to them.

streams, connecting   one connection, and how much is heard on it
endpoints             the ownership check; slots, connections and circuit of each endpoint
sender                one request to an endpoint, and what came of it; `circuit` says whether it is asked at all
delivery              what a delivery looks like: body, headers, signatures
retry                 when to try again, how much at once, and which messages are refused too often
upstream              what is delivered, where messages come from, and where acknowledgements go
leased                an upstream as long as this process may deliver
worker, workers       one for each subscription that shall be delivered, and all of them
trying, parallel      one request and what is reported of it; several at a time, of a parallel subscription
report                how a delivery goes, and what metrics say; `details` is what may be said of a failure
leases, holding       which process delivers what, and its heartbeats
rpc                   how a push server is driven by gRPC
"""
