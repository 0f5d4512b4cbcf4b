"""Keep sealed containers on disk, and answer a session's requests from them while the broker is away."""
