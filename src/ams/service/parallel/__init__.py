"""Parallel subscriptions: each message has its own lease, retry and end.

The state of one subscription, without I/O:

backlog           the state machine
leases, ordering  what it keeps of leases and waits, and of ordering keys
finishers         by which ids messages were finished, for exactly-once delivery

What this process works on:

opened            one subscription that is used
ownership         which node works on it, where several share the cursors
opening           which ones are used here: taken over, and let go

What is done with it:

pulling, finding  a pull, and which messages it gets
settling          what consumers ask for by ids: acknowledge, nack, extend, give back
storing           what is stored before anybody is told
covering          how long messages may be out, stored ahead for exactly-once delivery
keeping, due      what is done without anybody asking, and when
working           all of these together, and their start and end
requests          what is asked for by ids, as callers ask for it
watching          what is said of it: figures and findings
"""
