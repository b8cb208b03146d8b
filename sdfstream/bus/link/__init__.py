"""The link from agents' processes to a pipeline's process, for use without Kafka."""
