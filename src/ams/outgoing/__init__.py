"""What this service asks of hosts that others name.

guard, lookups   which addresses are connected to, and how they are found
fetching         small files and answers, by HTTP through the guard
sharing          one task for all who want the same
"""
