"""Exact answers by bucket elimination.

``reduce`` shrinks a model, ``order`` finds an order of elimination by annealing ``trees``,
``schedule`` decides which messages are held when, ``slicing`` conditions on a few variables where
memory is short even so, ``layout`` and ``plan`` lay out tables and messages, ``passes`` runs the
compiled passes over them, ``engine`` puts these together within the limits of ``cost``, and
``answers`` and ``marginals`` use it.
``independent``, ``blocks`` and ``mixed`` make chains of exact redraws.
"""
