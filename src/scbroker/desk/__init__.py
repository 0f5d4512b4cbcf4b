"""Do what the command line and the filesystem share."""
