"""Gray loss: what is known of losses, and elements that have been found to lose; `detect.loss` decides."""
