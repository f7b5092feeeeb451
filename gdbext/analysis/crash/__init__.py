"""Why a process died."""
