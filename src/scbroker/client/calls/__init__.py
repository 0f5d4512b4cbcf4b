"""Run operations in promise or callback style, on one background thread for all providers."""
