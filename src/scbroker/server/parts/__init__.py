"""Receive chunks, give presigned URLs, and sweep unreferenced objects."""
