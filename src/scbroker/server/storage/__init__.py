"""Keep rows in a database and chunks in an object store."""
