"""How chains move: rules, with the functions of their contract."""
