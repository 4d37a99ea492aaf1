"""What exists: projects, users, topics, subscriptions and who is on which access list."""
