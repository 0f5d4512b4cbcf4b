"""Checked by mypy --strict like all tests, and never run: `make check` is what fails."""
