"""Where the memory is: every byte by owner, what is resident, what free memory is held back."""
