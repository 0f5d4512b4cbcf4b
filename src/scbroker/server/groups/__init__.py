"""Find the members of groups, prove memberships, and find the groups that owe a new epoch."""
