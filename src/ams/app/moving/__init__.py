"""Moving an installation: exports all its data to one file, and imports it into an empty installation of any kind.

- exporter: writes a stopped installation as lines
- importer: reads the lines of an export into an empty installation
- rules: validates the lines before use
- files: the file of an export: line by line, compressed or not, stdin or stdout
"""
