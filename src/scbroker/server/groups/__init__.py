"""Know who the members of groups are, what proves it, and whether a group owes an epoch."""
