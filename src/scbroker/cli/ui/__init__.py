"""The user's page, one module for each subject."""
