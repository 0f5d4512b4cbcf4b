"""Documents that a user keeps for all of their devices: links, and the base of the address book."""
