"""Register users and log them in, keep their sessions, and verify the keys of others."""
