"""Keep a folder up to date with containers: `scbroker mirror`."""
