"""Exact answers by bucket elimination.

``reduce`` shrinks a model, ``order`` finds an order of elimination, ``slicing`` conditions on a few
variables where memory is short, ``plan`` lays out tables and messages, ``passes`` runs the compiled
passes over them, ``engine`` puts these together, and ``answers`` and ``marginals`` use it.
``independent``, ``blocks`` and ``mixed`` make chains of exact redraws.
"""
