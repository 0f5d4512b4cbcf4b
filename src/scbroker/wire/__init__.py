"""Define the messages of the protocol and their strict encoding."""
