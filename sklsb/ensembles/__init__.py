"""Several chains on one target."""
