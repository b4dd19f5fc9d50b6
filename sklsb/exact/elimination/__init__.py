"""Exact answers by bucket elimination.

``reduce`` makes a model small, ``order`` finds an order of elimination, ``slicing`` conditions on a
few variables where memory is short, ``plan`` lays tables and messages out, ``passes`` runs the
compiled passes over them, and ``answers`` has the public functions of `sklsb.exact`.
"""
