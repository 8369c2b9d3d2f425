"""How the service is put into operation: configurations to copy, and `stack`, which starts them for a try."""
