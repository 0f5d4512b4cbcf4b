"""Break the program in one place at a time, and expect the tests that are for that place to fail.

attacks      takes out the defences against each attack, in a copy of the source
conformance  breaks each row of the interface, in a forked process
engine       what both share
"""
