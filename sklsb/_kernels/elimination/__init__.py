"""Bucket elimination: orders, messages, draws and marginals."""
