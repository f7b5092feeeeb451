"""What a container looks like: shape files, bound to the types of a program, opened on an object."""
