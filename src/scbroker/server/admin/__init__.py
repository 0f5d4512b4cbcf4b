"""Administer a broker: check, sweep, backup, restore. `cli.admin` has the commands and the page."""
