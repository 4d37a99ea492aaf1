"""Results of EGI's jobs without Spark: tests compare the jobs with them, and the bench measures them."""
