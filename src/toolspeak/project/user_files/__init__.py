"""What is stored for a user: where their files are, the model they chose, their rules."""
