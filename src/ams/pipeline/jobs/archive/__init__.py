"""The archive: topics as a table by project, topic and day, written exactly once, merged, checked and read again."""
