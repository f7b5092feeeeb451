"""Containers followed through memory, and checked."""
