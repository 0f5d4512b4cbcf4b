"""Ways for an operation to break its row of docs/conformance.md, and the run that tries them all."""
