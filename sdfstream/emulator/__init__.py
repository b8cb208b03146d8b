"""An emulated training job: real packets over UDP queue pairs that can be steered. Start at `process_io`."""
