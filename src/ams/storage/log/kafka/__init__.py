"""The Kafka engine: a topic of ours is a Kafka topic of one partition, and an offset of ours is the broker's.

log                  the log itself, written and read by every node alike, and its upkeep
options              where the brokers are, settings of topics, limits of memory and time
connection           requests to one broker; and which broker to ask, again until one answers
administration       listing, making, changing and deleting topics on the brokers
topics               the directory of topics, as the brokers list them, and which keep less than promised
partition            the name of a topic's partition, and what its first offset is called here
records              messages as Kafka records, and back
batches              what is sent to a topic at once, whole requests only
sender               takes requests to the leaders of their topics, each stored once and in order
keys                 appends with an idempotency key, each stored once
idempotency_store    the protocol of what Kafka cannot keep: claims of keys, and the number of bytes
loading              messages with offsets and times from another log, into a topic that is not used yet
fetch                questions to leaders: messages, ends, starts and times
message_cache        messages in memory: the tails of topics, and what was fetched ahead
reader               reading topics, from memory and by fetches; following those that calls wait on
"""
