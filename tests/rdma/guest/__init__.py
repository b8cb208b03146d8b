"""A QEMU guest with Debian's kernel that shares this machine's files read-only; needs neither root nor KVM.

In reading order: `packages` (what of Debian is unpacked), `modules` (kernel modules in their order), `initramfs` (boot
files, cached under ``.cache/rdma``), `scripts` (what the guest does), `boot` (start, limit, result, one retry).
"""
