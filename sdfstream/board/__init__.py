"""What is true now, as people and programs ask for it: a read model over the bus. Sans-IO."""
