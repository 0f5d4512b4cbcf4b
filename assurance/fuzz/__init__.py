"""Bytes that nobody foresaw, for every decoder that the network or the disk reaches: see `targets`."""
