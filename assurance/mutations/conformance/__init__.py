"""Ways for an operation to break its row of tests/conformance/rows.txt, and the run that tries them all."""
