"""The code and rows.txt compared with the client interface, which is in docs/interface.toml.

`test_interface` compares the three, `test_types` runs a type checker. `assurance/mutations/conformance`
breaks one operation at a time and expects the tests that its row names to fail.

`test_broker` and `test_client` are about the conformance kit, `scbroker.conformance`.
"""
