"""Send requests to one broker and to its object store."""
