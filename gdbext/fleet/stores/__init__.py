"""Where cores come from and datasets go to, besides folders: object stores, by URL."""
