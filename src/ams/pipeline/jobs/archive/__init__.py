"""The archive: topics as Parquet by project, topic and day, written exactly once, merged, checked and read again."""
