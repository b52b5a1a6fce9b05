"""How does an export look? Its patches where they lie, as a picture."""
