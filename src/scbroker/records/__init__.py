"""Define the signed objects and the rules by which they are judged."""
