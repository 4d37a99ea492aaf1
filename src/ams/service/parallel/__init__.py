"""Parallel subscriptions: each message has its own lease, retry and end.

backlog           the state machine of one subscription
leases, ordering  what it keeps of leases and waits, and of ordering keys
finishers         by which ids messages were finished, for exactly-once delivery
opened            a subscription that this process works on
finding           which messages are to be given
ownership         which node works on it, where several share the cursors
working           what consumers do: pull, acknowledge, nack, extend; and what is due without them
requests          the same as callers ask for it, by ids
"""
