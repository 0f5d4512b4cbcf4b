"""What operations cost, beside what their parts cost alone: `make bench`.

Every figure stands beside a floor that is measured in the same run, a little before or after it, by the
same libraries: what the job must cost at least. Figures of two runs or machines cannot be compared; their
ratios to the floors can.
"""
