"""What the glibc commands show."""
