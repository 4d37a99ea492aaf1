"""Parallel subscriptions: each message has its own lease, retry and acknowledgement.

The state of one subscription, without I/O:

    backlog         the state machine, and the fair share of each consumer
    message_state   its parts: done messages, lease table, failures, ordering keys
    hand_out_ids    valid ack ids, and the grace period after a restart

The subscriptions of this process:

    open_subscriptions  open subscriptions, their ownership, the timer for lease expiry

Use cases:

    pulls           a pull: finds messages, leases them, waits for more
    settlement      requests with ack ids: acknowledge, nack, extend, give back
    ack_storer      stores settled messages, and the horizon of exactly-once delivery
    sweeper         lease expiry, dead letters, closing of idle subscriptions
    assembly        all of these, with start and stop
    metrics         metrics and findings
"""
