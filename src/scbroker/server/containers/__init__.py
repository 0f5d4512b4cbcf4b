"""Store records and serve views of containers."""
