"""Decoders under hostile bytes: each gives a value that keeps its promise, or a documented refusal.

`targets` lists them. `test_decoders` runs each for a few seconds with Hypothesis and tries `corpus/` again;
`run` searches with atheris for as long as it is given, and adds what fails to `corpus/`.
"""
