"""How chains move: a rule each, and the functions of its contract."""
