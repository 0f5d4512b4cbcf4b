"""Read groups: their verified chains, members and keys. `rosters` makes their records."""
