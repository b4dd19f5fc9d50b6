"""How chains move: rules, with the functions of their contract.

A rule is a named tuple of numbers and arrays, with compiled functions and `Facts` for Python.
``doc/add_sampler.rst`` walks through an example.
"""
