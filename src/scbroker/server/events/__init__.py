"""Record, number, page and drop events."""
