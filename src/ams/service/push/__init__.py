"""The use cases of push delivery.

configurations  push configurations, verification, secrets and status
assignment      shares subscriptions among the processes that deliver
identity        identity tokens of deliveries in Google's form
runner          workers inside the service, with the engines as their upstream
"""
