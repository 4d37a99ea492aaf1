"""A world in one process: the real service under a seeded simulator of time, threads, network, disk and crashes.

world       virtual time: one heap of events, and every choice drawn from one seed
threads     threads, locks, queues and executors that pass one baton, in virtual time
event_loop  an asyncio event loop whose callbacks are events of the world
network     connections between clients and the service's own listener
disk        the disk in memory, each call a step that takes time
sqlite_files  SQLite on that disk
seams       replaces time, threads and chance in the service while a world runs
node        the service: its start, crash, power cut, restart and stop
clients     clients over real HTTP bytes
scenario    turns a seed into operations and faults
workload    the operations, and the histories they record
operations  operations on resources of one client, and their expected states
google      Google's calls below the transport
backups     takes backups, restores them and checks them
coverage    points of the service at which crashes happened
laws        invariants at the end of a run
models      PostgreSQL and Kafka, for worlds of several nodes
cluster     worlds of several nodes, and the faults between them
search      runs many seeds and shrinks those that fail

`python -m simulation --seeds 100`; docs/how-to/test.md says more.
"""
