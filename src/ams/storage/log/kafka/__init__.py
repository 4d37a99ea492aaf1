"""The Kafka engine: a topic of ours is a Kafka topic of one partition, and an offset of ours is the broker's."""
