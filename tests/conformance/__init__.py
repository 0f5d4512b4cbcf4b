"""The code and docs/conformance.md held to the client interface, which stands in docs/interface.toml.

`test_interface` compares the three, `test_types` runs a type checker, `mutate` changes one operation at a
time and expects the tests that its row names to fail.
"""
