"""Every byte that a broker stores, flipped: reads give what was written, or an error."""
