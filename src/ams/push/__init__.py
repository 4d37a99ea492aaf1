"""Push: reaching endpoints of others over https, safely, and delivering messages to them.

guard, brief      which addresses are connected to, and how much is heard from whoever is there
endpoint          the ownership check
sending           one request to an endpoint, and what came of it
retry, flow, circuit   when to try again, how much at once, whether at all: pure functions
bodies, signing   what a delivery looks like
upstream          where a worker gets messages and leaves acknowledgements: in this process, or over the HTTP API
worker, workers   one for each subscription that shall be delivered, and all of them
state             how a delivery goes
leases            which process delivers what
"""
