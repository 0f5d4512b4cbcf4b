"""Administer a broker: check, sweep, backup, restore. `commands` offers them to the command line."""
