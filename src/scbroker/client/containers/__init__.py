"""Read and write containers."""
