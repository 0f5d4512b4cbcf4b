"""Register, authenticate, throttle and delete users."""
