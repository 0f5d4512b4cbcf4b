"""Several brokers on Patroni, HAProxy and Ceph: left out unless asked for.

    pytest --engines cluster assurance/cluster

They need Debian packages; a run without them names the missing ones.
"""
