"""A leaf-spine of network namespaces: real packets, real kernel ECMP, real queues, exactly known truth.

::

    with Fabric.up(FabricSpec(hosts=8)) as fabric:
        config = fabric.agent_config(MeshSpec(peers_per_nic=4))
        fault = fabric.inject("l0--s1", "link-down")
        fabric.heal(fault.id)

Read `spec` (what there is to choose), `plan` (names, addresses, routes: all on paper), `setup` (paper to netlink),
then `fabric_io` (a running fabric). Namespaces have no name and are held by descriptors of one owner process, so
the kernel removes everything with the owner. Truth (`oracle`, ``truth/``) is for tests and scores; no stage reads it.
"""

from sdfstream.lab.fabric_io import Fabric
from sdfstream.lab.faults import Fault
from sdfstream.lab.mesh import MeshSpec
from sdfstream.lab.spec import FabricSpec

__all__ = ["Fabric", "FabricSpec", "Fault", "MeshSpec"]
