"""What languages leave in memory of types: C++ virtual tables and names, CPython objects."""
