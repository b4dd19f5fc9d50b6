"""Independent exact draws."""
