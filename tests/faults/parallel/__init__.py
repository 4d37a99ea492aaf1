"""Parallel subscriptions under kills: three kinds of them, their consumers, and the laws of their histories."""
