"""Tests that run in the guest, where a queue pair is a real one; `tests/rdma/test_guest.py` boots it for them."""
