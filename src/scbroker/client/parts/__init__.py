"""Move large contents to and from the broker, and resume them."""
