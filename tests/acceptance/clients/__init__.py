"""Conversations of real clients with the service, as they send them: request line, headers and body, byte for byte.

The official library has its own test. Here is every other known client: what each sends was written down from the
contract of clients (part A), and so was what each cannot live without in an answer. One file per family of clients.
"""
