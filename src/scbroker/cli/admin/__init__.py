"""The commands of operators, one module for each subject."""
