"""What happens to acknowledged writes when brokers, databases, disks and networks fail.

`crash` kills at random under load and compares everything with what was acknowledged; `histories`
lets several clients write through several brokers while links are cut, and checks that there is one
order that explains what everybody was told. The other modules are what both are made of.
"""
