"""A world in one process: the real service under a seeded simulator of time, threads, network, disk and crashes.

world       virtual time: one heap of events, and every choice drawn from one seed
threads     threads, locks, queues and executors that pass one baton, in virtual time
event_loop  an asyncio event loop whose callbacks are events of the world
network     connections between clients and the service's own listener
disk        the disk in memory, each call a step that takes time
sqlite_files  SQLite on that disk
seams       what is put in the place of time, threads and chance while a world runs
node        the service: its start, crash, power cut, restart and stop
clients     clients over real HTTP bytes
scenario    a seed made into operations and faults
workload    the operations, and the histories they make
operations  those on what a client has for itself, and their shadows
google      Google's calls below the transport
backups     backups, and what is in them when they are restored
coverage    which points of the program crashes have met
laws        what must hold at each answer and at the end
models      PostgreSQL and Kafka, for worlds of several nodes
cluster     such worlds: nodes, what goes wrong between them, a run
search      many seeds, and the shrinking of one that fails

`python -m simulation --seeds 100`; docs/how-to/simulate.md says more.
"""
