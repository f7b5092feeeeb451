"""What contradicts itself."""
