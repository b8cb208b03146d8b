"""Places where no cabling is declared and no path is traced: NICs that share a switch, and links that some of
their paths cross.
"""
