"""Where inside the network does factorization break? (§3.4, Fig. 2, 5, 10–12)"""
