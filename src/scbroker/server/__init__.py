"""Keep containers that cannot be read here, and serve them by their access lists."""
