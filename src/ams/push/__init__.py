"""Push: reaching endpoints of others over https, safely, and delivering messages to them.

connecting        one connection, over `streams`, and how much is heard on it; `failing` says why there is none
endpoint          the ownership check
sending           one request to an endpoint, and what came of it: the promise
sender            keeps it over https; `endpoints` keeps places, connections and circuit of each, `answers` reads
retry, flow, circuit   when to try again, how much at once, whether at all: pure functions
bodies, headers, signing, delivery   what a delivery looks like
refusals          which answers accept it, and which messages are refused too often
upstream          where a worker gets messages and leaves acknowledgements: in this process, or over the HTTP API
worker, workers   one for each subscription that shall be delivered, and all of them
cycle             what a worker does again and again
state, report, details   how a delivery goes, and what may be said of it
leases, sharing, holding   which process delivers what; `memory_leases` keeps it where one process has everything,
                  and `remembered_leases` whether there are others
leased            nothing is sent or acknowledged when a lease is over
figures           what metrics say of the workers of a process
rpc               how a push server is driven by gRPC
"""
