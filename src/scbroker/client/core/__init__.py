"""Verify what a broker serves, and seal what is sent, without I/O and without a clock."""
