"""The use cases: what can be done with topics, subscriptions, users and the rest, without HTTP and without SQL."""
