"""Ladders of replicas between a reference and a target."""
