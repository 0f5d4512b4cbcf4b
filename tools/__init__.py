"""Programs for developing scbroker."""
