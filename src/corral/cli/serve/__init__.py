"""The processes of a cluster, one by one."""
