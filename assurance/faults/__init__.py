"""Acknowledged writes while brokers, databases, disks and networks fail.

`crash` kills at random under load and compares everything with what was acknowledged. `histories` lets
several clients write through several brokers while links are cut, and searches for one order that explains
every answer. The other modules are shared by both.
"""
