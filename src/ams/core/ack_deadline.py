"""The ack deadline of subscriptions: how many seconds a consumer has to acknowledge what it was given."""

DEFAULT_ACK_DEADLINE = 10
MIN_ACK_DEADLINE = 10
"""Least seconds of parallel subscriptions and of Google's streams. Other subscriptions may have 0."""
MAX_ACK_DEADLINE = 600
"""Most seconds (HTTP contract 9.3). Also the longest lease, and the longest delay that a nack asks for."""
BAD_ACK_DEADLINE = f"Invalid ackDeadlineSeconds(needs value between 0 and {MAX_ACK_DEADLINE}) Arguments"
