"""Parallel subscriptions: each message has its own lease, retry and end.

The state of one subscription, without I/O:

backlog           the state machine, and how much each consumer may take; of these parts:
message_state     messages that are done, leased, waiting or have failed, and ordering keys under way
hand_out_ids      ack ids that count, the one that settled each message, and the grace after a restart

The subscriptions of this process:

opening           those used here: taken over, and let go; the timer for lease expiry

Use cases:

pulling           a pull: finds messages, leases them, waits for others
settling          requests with ack ids: acknowledge, nack, extend, give back
storing           writing what was settled before the answer, and the horizon of exactly-once delivery
sweeper           expires leases, sends dead letters, closes idle subscriptions
working           all of these together, and their start and end
watching          figures and findings
"""
