"""Online detectors: liveness, flaps, delay excess, marks, loss; where and why.

Read `stage` first, then in the order in which a message becomes a finding:

=======================  ===========================================================================================
messages in              `intake/` (which engine takes which topic; a slice as one), `engines` (all)
who and where            `sessions` numbers for names; `presence` agents, NICs, ports; `bustime` agents' instants;
                         `cabling`, `routes`, `flows` what a path or flow crosses; `jobs` whose queue pairs cross it
detectors                `liveness` and `silence`, `flap`, `runs`, `gray/` and `loss`, `delays` and
                         `congestion`, `queues.bursts` (gone at once), `marks`, `ports`, `clocks`, `miscabled`,
                         `compare/` (clock steps, in band against probes), `inband` and `slow_pairs`; `health` of NIC
                         sides
what is a symptom        `root/`: pause storms, carriers lost with their leaf, how long silence is given until it is
                         told what of, what is put under which root
which element            `problem` (paths as trials), `localise` (the element that explains them), `recent` (cache, and
                         faults whose aftermath is no news)
findings out             `evaluation` (detectors asked in order, each at an `instant`), `detections`, `ledger`;
                         `learned/` causes that operators' labels teach
=======================  ===========================================================================================
"""
