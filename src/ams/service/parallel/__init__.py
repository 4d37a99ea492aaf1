"""Parallel subscriptions: each message has its own lease, retry and end.

The state of one subscription, without I/O:

backlog           the state machine, of these parts:
message_state     messages that are done or have failed, and ordering keys under way
lease_table       leases, and waits after failures
hand_out_ids      ack ids that count, the one that settled each message, and the grace after a restart
shares            how much each consumer may take

What this process works on:

opened            one subscription that is used
ownership         the node that works on it, where several share the cursors
opening           the subscriptions used here: taken over, and let go

What is done with it:

pulling, finding  a pull, and the messages it gets
settling          requests with ack ids: acknowledge, nack, extend, give back
storing           writing what was settled before the answer, and the horizon of exactly-once delivery
sweeper           expires leases, sends dead letters, closes idle subscriptions; expiry_timer wakes it
working           all of these together, and their start and end
watching          figures and findings
"""
