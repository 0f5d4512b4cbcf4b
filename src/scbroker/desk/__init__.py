"""Functions that command line, page, mirror and filesystem share: names, paths, people and rights."""
