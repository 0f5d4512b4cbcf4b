"""Bring the tables of a database up to date."""
