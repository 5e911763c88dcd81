"""What finished runs use, where they look, and what they get wrong."""
