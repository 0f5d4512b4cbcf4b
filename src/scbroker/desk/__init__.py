"""Do what command line, page, mirror and filesystem do to containers as a person sees them."""
