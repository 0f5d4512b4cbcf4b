"""Measure the cost of operations against a floor: `make bench`.

The floor is what the job costs at least: its HTTP exchange, cryptography and commit alone, by the same
libraries, measured in the same run. Compare ratios to the floor between runs and machines, never the figures.
"""
