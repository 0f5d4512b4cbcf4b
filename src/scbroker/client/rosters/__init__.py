"""Make the records of groups: create, change, leave and delete them, and renew their containers."""
