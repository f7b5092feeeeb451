"""What grows between samples of a process."""
