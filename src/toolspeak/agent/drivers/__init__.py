"""How a model is reached: each driver makes one model turn of a conversation."""
