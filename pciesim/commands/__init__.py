"""The commands of the shell, one module each. Every module has an ``app`` and imports what is heavy when it runs."""
