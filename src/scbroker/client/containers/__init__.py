"""Read containers (fetch, verify, decrypt) and write them (draft, encrypt, sign, send)."""
