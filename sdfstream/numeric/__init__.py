"""Mathematics on plain arrays; knows nothing of networks, topics or time zones."""
