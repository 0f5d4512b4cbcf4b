"""Checked by mypy and pyright, both strict, and never run: `make check` is what fails."""
