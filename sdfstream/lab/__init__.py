"""A leaf-spine of network namespaces: real packets, real kernel ECMP, real queues, exactly known truth.

::

    with Fabric.up(FabricSpec(hosts=8)) as fabric:
        config = fabric.agent_config(MeshSpec(peers_per_nic=4))
        fault = fabric.inject("l0--s1", "link-down")
        fabric.heal(fault.id)

In reading order:

- the fabric on paper: `spec` (sizes and rates), `plan` (names, addresses, routes), `topology` (as declared), `mesh`
  (the agents' configuration), `wrong_clocks`;
- a running fabric: `setup` (plan to netlink requests), `kernel` (netlink, queues, eBPF), `features`, `oracle` (the
  path of a packet), `network_io` (nodes and their truth), `fabric_io`;
- faults: `faults`, `faults_io`, `timed_io` (flaps and congestion), `traffic`, `traffic_io`, `sender_io`;
- truth and workloads: `job_io` (emulated training jobs), `iperf_io`;
- a fabric owned by another process: `runtime_io`, `owner_io`, `control`, `client_io`.

Namespaces have no name and are held by descriptors of one owner process, so the kernel removes everything with the
owner. Truth (`oracle`, ``truth/``) is for tests and scores; no stage reads it.
"""

from sdfstream.lab.fabric_io import Fabric
from sdfstream.lab.faults import Fault
from sdfstream.lab.mesh import MeshSpec
from sdfstream.lab.spec import FabricSpec

__all__ = ["Fabric", "FabricSpec", "Fault", "MeshSpec"]
