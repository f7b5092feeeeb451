"""Lists and hash tables: counted, judged, found among variables."""
