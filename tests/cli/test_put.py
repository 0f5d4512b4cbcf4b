"""`scbroker put` with real files and a real broker."""
