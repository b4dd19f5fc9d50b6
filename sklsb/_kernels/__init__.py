"""Everything that is compiled. It imports nothing else, so `_jit` knows what kernels are made of.

All modules are imported at once, right after their files are read: so what is compiled is what was
read, even if a file is edited later.
"""

from importlib import import_module

from sklsb._kernels._jit import modules

for room in modules():
    import_module(room)
