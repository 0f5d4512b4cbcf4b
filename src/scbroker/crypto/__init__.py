"""Sign, verify, seal and unseal with the algorithms of the cryptography library."""
