"""Push delivery: sends messages to HTTPS endpoints of users, safely.

endpoint_connection  one connection, with limits on what is read from it
endpoints            ownership check; slots, idle connections and circuit breaker of each endpoint
sender               one request to an endpoint, and its outcome
delivery_request     body, headers and signatures of a delivery, also in Google's form
retry                backoff, batch size, and dead letters after repeated refusals
upstream             targets, the source of messages, the sink of acknowledgements
worker               delivers one subscription
workers              all workers of a process, while its lease goes on
attempts             base of the delivery loops: one attempt, its outcome, and its report without secrets
parallel             concurrent deliveries of a parallel subscription
report               state of a delivery, and metrics
lease_holder         heartbeats that renew the leases of a process
rpc                  drives a push server by gRPC
"""
