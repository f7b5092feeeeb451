"""Convenience functions and breakpoints."""
