"""What an agent keeps on disk while the bus is away: bounded, in order."""
