"""Samples of a process over time: the folder that keeps them, when they are taken, and how they are shown live."""
