"""The virtual rack by itself, without a bring-up around it."""
