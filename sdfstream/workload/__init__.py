"""Jobs on the fabric: a training job emulated over real packets, and what in-band traffic says about its paths."""
