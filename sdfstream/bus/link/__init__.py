"""How an agent's process hands its outputs to a pipeline's process without Kafka, and receives from it."""
