"""``python -m tests.audit``: known vulnerabilities of what is locked, licences, secrets in the tree.

``--offline`` leaves out the first, which needs the network to be up to date; ``make check`` does that. Exit 1 when
something is found that no exception of `policy` names.
"""
