"""The operator's page, one module for each view."""
