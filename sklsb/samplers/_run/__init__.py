"""What all samplers share."""
