"""Try every small history on the rules of validity, and compare with an oracle of access control."""
