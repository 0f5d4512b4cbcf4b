"""Serve pages to one browser on this machine."""
