"""What keeps blocks alive: who points at them, by which path, and how much each keeps."""
