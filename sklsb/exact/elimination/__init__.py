"""Exact answers by bucket elimination."""
