"""Limit requests, connections and large bodies."""
