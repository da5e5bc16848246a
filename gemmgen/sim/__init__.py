"""The simulator: a kernel IR run over NumPy, all threads of many blocks at once, checked and counted."""
