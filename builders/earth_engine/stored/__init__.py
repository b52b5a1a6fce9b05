"""What does an export hold? Its files by their names, its form by its records; and the version that is made of it."""
