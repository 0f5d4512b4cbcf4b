"""What a user shares beyond user ids, and the documents that a user keeps for themselves."""
