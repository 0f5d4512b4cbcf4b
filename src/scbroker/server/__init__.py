"""Store containers that the broker cannot decrypt, and serve them to the users of their access lists."""
