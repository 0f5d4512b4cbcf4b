"""Attacks by a broker, its accomplices, the network and thieves, mounted against the real client."""
