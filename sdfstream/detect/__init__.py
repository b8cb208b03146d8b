"""Online detectors: liveness, flaps, delay excess, marks, loss; where and why."""
