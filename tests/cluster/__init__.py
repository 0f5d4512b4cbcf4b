"""Tests of several brokers, and the engines under them: left out unless asked for.

    pytest --engines cluster tests/cluster

They need Debian packages; which ones, the run says where they are missing.
"""
