"""Do held-out outputs superpose what was memorised, and with which kernel? (§3.3, Fig. 1 d–e, 8)"""
