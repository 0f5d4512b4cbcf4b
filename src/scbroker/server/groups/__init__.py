"""Find the members of groups, the proofs of membership, and the groups that owe an epoch."""
