"""Tests of several brokers, and the engines under them: left out unless asked for.

    pytest --engines cluster assurance/cluster

They need Debian packages; which ones, the run says where they are missing.
"""
