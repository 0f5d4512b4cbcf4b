"""Commands that administer a broker: check, sweep, backup, restore. `commands` offers them to the CLI."""
