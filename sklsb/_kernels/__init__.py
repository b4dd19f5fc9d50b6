"""Everything that is compiled. It imports from here alone: so `_jit` knows what it is made of.

All rooms are imported at once, right after their content was read: what is compiled is what was
read, also if a file is edited later.
"""

from importlib import import_module

from sklsb._kernels._jit import modules

for room in modules():
    import_module(room)
