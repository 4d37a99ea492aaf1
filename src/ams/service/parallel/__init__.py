"""Parallel subscriptions: each message has its own lease, retry and end.

The state of one subscription, without I/O:

backlog           the state machine, of these parts:
done, failures    what is done; what has failed, and what is put aside
leases, ordering  leases and waits; ordering keys
ids, finishers    which ids count, and by which one a message was finished
before            what may be out since before this run
shares            how much each consumer may take

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
