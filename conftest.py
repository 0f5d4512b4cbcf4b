"""The fixtures of tests/kit, for tests/ and assurance/ alike."""

pytest_plugins = ["tests.kit.fixtures", "tests.kit.people"]
