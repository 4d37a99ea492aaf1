"""The way to the brokers: connections, leaders, and questions that many share."""
