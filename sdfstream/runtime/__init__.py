"""How stages run: live, over a recording, on Kafka. Start at `driver`."""
