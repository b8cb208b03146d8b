"""How stages run: live in one process, shared among processes on Kafka, over a recording.

In reading order:

1. `driver`: the `Stage` protocol, and the steps of one stage along bus time.
2. `control_io`, `layouts`, `stage_io`: when to stop and commit; which saved states are taken up; the one loop over a
   task: read, step, commit.
3. `archive_io`, `live_io`: the archive as a task; stages and watchers side by side on a live bus.
4. `replay`, `replay_io`: the same stages over a recording, and the recording as their input.
5. `record_io`, `player_io`, `play_io`: a bus into a recording, and a recording onto a bus; `switches_io`: counters of
   switches onto a bus.
6. `health`, `metrics`, `metrics_io`: the progress of all this, and how a process serves it.
7. `loop_io`, `priority_io`, `output_io`: event loop and signals, share of the machine, output; `allocators`,
   `freed_memory_io`, `startup_memory_io`: memory.
"""
