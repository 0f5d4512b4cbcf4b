"""What an operator does to a broker: sweep, check, backup, restore. `commands` calls these."""
