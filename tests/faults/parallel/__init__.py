"""Parallel subscriptions under kills: three kinds of them, their consumers, and the laws over what they saw."""
