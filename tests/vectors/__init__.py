"""Published test vectors, and what makes and runs them: see README.md."""
