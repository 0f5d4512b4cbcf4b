"""Judge what is served and seal what is sent, without I/O and without a clock."""
