"""Test brokers and clients for conformance with docs/spec. Spec: docs/spec/conformance.md."""
