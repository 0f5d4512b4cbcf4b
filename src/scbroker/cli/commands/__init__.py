"""The commands of users, one module for each subject.

A module imports what its commands need inside them, so that the program starts quickly.
"""
