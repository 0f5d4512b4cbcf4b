"""Tests against the engines of a broker that spans machines: left out unless asked for.

    pytest -m cluster tests/cluster

They need Debian packages; which ones, each engine's module says.
"""
