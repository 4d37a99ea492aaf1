"""The Kafka engine: a topic of ours is a Kafka topic of one partition, and an offset of ours is the broker's.

- `log`: implementation of the `Log` protocol, for every node, with its background work.
- `options`: brokers, topic settings, limits of memory and time.
- `connection`: connections to brokers, leader look-up, retries.
- `administration`: requests that list, create, change and delete topics.
- `topics`: the directory of topics on the brokers, and a check of their settings.
- `partition`: names of Kafka topics, and their offset shift.
- `records`: conversion of messages to Kafka records and back.
- `sender`: idempotent, ordered producer: produce batches of whole requests.
- `keyed_appends`: appends with an idempotency key.
- `idempotency_store`: protocol of the store for claims of keys, and byte counts.
- `fetch`: fetch and offset requests to leaders.
- `message_cache`: cache of topic tails, and read-ahead cache.
- `reader`: reads from cache and brokers; long polling for waiting calls.
"""
