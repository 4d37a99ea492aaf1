"""A world in one process: the real service under a seeded simulator of time, threads, network, disk and crashes.

world       virtual time: one heap of events, and every choice drawn from one seed
threads     threads, locks, queues and executors that pass one baton, in virtual time
event_loop  an asyncio event loop whose callbacks are events of the world
network     connections between clients and the service's own listener
disk        the disk of the log in memory, each call a step that takes time
seams       what is put in the place of time, threads and chance while a world runs
node        the service: its start, crash, power cut, restart and stop
clients     clients over real HTTP bytes
scenario    a seed made into operations and faults
workload    the operations, and the histories they make
laws        what must hold at each answer and at the end
search      many seeds, and the shrinking of one that fails

`python -m simulation --seeds 100`; docs/how-to/simulate.md says more.
"""
