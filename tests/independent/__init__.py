"""The formats a second time, written from docs/spec alone: the pages' executable twin.

Nothing here shares a line with `src`, so that the specification and the code cannot drift apart
unnoticed: the vectors are read by both, and what one of them makes, the other has to read. Each
module follows one part of the specification in its order and words; it is a reader and writer for
tests, neither fast nor hardened, and no example of how to keep a secret.
"""
