"""The bus on Kafka.

====================  ==============================================================================================
publish, subscribe    `bus_io`; `producer_io` and `steady_io` (failures of the client); `reader_io` and `groups_io`
exactly once          `task_io` a unit of work; `commit_io` and `notes` its commits
who has which unit    `share_io` its runs; `ownership` when it may be opened; `assignment` who is to have it;
                      `member_io` the process in its group, in a thread (`thread_io`)
unreadable records    `unreadable_io`: what the client cannot read is refused record by record; `fitting`
order                 `partitions_io` and `merge`: partitions as one stream in bus order, who waits for whom; `times`
topics                `topic_policy` and `topic_rules`; `topics_io`, `admin_io`, `topics_text`
who may               `config`, `security_io`; `roles`, `acl_io`; what is wrong: `denied`, `diagnose_io`, `errors_io`
====================  ==============================================================================================
"""
