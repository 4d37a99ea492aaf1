"""Worker processes for long tasks, with limited time and memory.

- pool: fair queue by project, and the worker processes
- program: the program of a worker process
"""
