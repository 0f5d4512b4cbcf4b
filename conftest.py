"""The fixtures of tests/kit, for tests/ and assurance/ alike."""

import signal

pytest_plugins = ["tests.kit.fixtures", "tests.kit.people"]

# A shell has what it runs in the background ignore interrupts, and so would all that the tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
