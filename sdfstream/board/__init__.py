"""What is true now, as people and programs ask for it: a read model over the bus. Sans-IO.

Read `board` (fed by `paths`, `mesh`, `lateness`; `nic_grid`), then `jobs` (with `rates`, `commands`, `job_facts`), then
`why` (and `why_text`).
As text: `status_text`, `findings_text`, `commands_text`, `top_view` (the NIC grid of ``sdfstream top``), `humanize`.
"""
