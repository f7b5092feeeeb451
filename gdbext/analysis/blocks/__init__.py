"""Blocks of all heaps: summed up, listed, queried, and what is at one address."""
