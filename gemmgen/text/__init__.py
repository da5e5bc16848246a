"""Plain text for a terminal: tables, paragraphs, numbers with units. It knows nothing of kernels, so any part may use
it."""
