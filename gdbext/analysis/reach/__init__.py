"""What can be reached from the roots of a target: blocks as nodes, words that point into them as edges."""
