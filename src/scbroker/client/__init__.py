"""Read and write containers on a broker, encrypting and verifying on the caller's machine."""
