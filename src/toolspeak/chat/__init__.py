"""A conversation at a terminal. Importing it loads nothing: the first screen comes before the agent."""
