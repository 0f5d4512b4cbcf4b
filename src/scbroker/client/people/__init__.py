"""Know other people: contacts, and documents that a user keeps for all of their devices."""
