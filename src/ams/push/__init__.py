"""Push: reaching endpoints of others over https, safely, and delivering messages to them.

connecting        one connection, and how much is heard on it
endpoints         the ownership check; slots, connections and circuit of each endpoint
sender            one request to an endpoint, and what came of it
delivery          the body, headers and signatures of a delivery, also in Google's form
retry             when to try again, how much at once, and which messages are refused too often
upstream          the targets of deliveries, where messages come from, and where acknowledgements go
worker, workers   one for each subscription that shall be delivered, and all of them, as long as the lease goes on
trying, parallel  one request and what is reported of it; several at a time, of a parallel subscription
report            how a delivery goes, and what metrics say
holding           the heartbeats of one process, by which it has its leases
rpc               how a push server is driven by gRPC
"""
